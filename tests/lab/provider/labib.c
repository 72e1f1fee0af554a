// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * labib: a stand-in RDMA provider for the test lab.  It registers devices with
 * the real ib_core and answers port queries and performance-management MADs
 * from values set in debugfs, so that /sys/class/infiniband, the netlink
 * interface and the netdev/PCI links are produced by the kernel's own code for
 * an InfiniBand or RoCE adapter.  It moves no data and has no user verbs.
 *
 * A device comes and goes with the driver of its PCI function (hot-unplug,
 * unbind, vfio-pci), and a RoCE port is down while its netdev has no carrier.
 *
 *   modprobe labib pci=0000:41:00.0,0000:81:00.0 roce=0,1 name=mlx5_%d
 *   echo 70000 > /sys/kernel/debug/labib/mlx5_0/symbol_error
 *   echo 'mlx5_core 0000:41:00.0: Port module event: module 0, Cable unplugged' > /sys/kernel/debug/labib/say
 */
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/debugfs.h>
#include <linux/netdevice.h>
#include <rdma/ib_verbs.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_pma.h>

#define MAXDEV 8
static char *pci[MAXDEV];
static int npci;
module_param_array(pci, charp, &npci, 0444);
MODULE_PARM_DESC(pci, "PCI functions (dddd:bb:dd.f) that the devices belong to");
static int roce[MAXDEV];
static int nroce;
module_param_array(roce, int, &nroce, 0444);
MODULE_PARM_DESC(roce, "1: RoCE port bound to that function's netdev, 0: InfiniBand port");
static char *name = "mlx5_%d";
module_param(name, charp, 0444);
static int ext = 1;
module_param(ext, int, 0444);
MODULE_PARM_DESC(ext, "0: no extended (64-bit) port counters");

static const char * const hwname[] = {
	"rx_write_requests", "rx_read_requests", "rx_atomic_requests", "rx_dct_connect",
	"out_of_buffer", "out_of_sequence", "duplicate_request", "rnr_nak_retry_err",
	"packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err",
	"resp_local_length_error", "resp_cqe_error", "req_cqe_error",
	"req_remote_invalid_request", "req_remote_access_errors", "resp_remote_access_errors",
	"resp_cqe_flush_error", "req_cqe_flush_error", "roce_adp_retrans", "roce_adp_retrans_to",
	"roce_slow_restart", "roce_slow_restart_cnps", "roce_slow_restart_trans",
	"rp_cnp_ignored", "rp_cnp_handled", "np_ecn_marked_roce_packets", "np_cnp_sent",
	"rx_icrc_encapsulated",
};
#define NHW ARRAY_SIZE(hwname)

struct labib {
	struct ib_device ib;
	struct pci_dev *pdev;
	struct net_device *nd;
	bool roce;
	u64 guid;
	struct dentry *dir;
	u32 state, phys_state, width, speed, lid, lmc, sm_lid, sm_sl, cap_mask, mtu, mad_fail;
	u64 symbol_error, link_error_recovery, link_downed, rcv_errors, rcv_remphys,
	    rcv_switch_relay, xmit_discards, xmit_constraint, rcv_constraint,
	    local_link_integrity, buffer_overrun, vl15_dropped, xmit_data, rcv_data,
	    xmit_packets, rcv_packets, uni_xmit, uni_rcv, multi_xmit, multi_rcv, xmit_wait;
	u64 hw[NHW];
	struct rdma_stat_desc desc[NHW];
};
static struct labib *devs[MAXDEV];
static struct dentry *root;
#define L(d) container_of(d, struct labib, ib)

static int q_device(struct ib_device *d, struct ib_device_attr *a, struct ib_udata *u)
{
	memset(a, 0, sizeof(*a));
	a->fw_ver = (28ULL << 32) | (43ULL << 16) | 1014;
	a->sys_image_guid = cpu_to_be64(L(d)->guid);
	a->vendor_id = 0x02c9;
	a->vendor_part_id = 4129;
	a->max_qp = 131072; a->max_cq = 16777216; a->max_mr = 16777216; a->max_pkeys = 128;
	return 0;
}

static int q_port(struct ib_device *d, u32 port, struct ib_port_attr *a)
{
	struct labib *l = L(d);

	a->state = l->state;
	a->phys_state = l->phys_state;
	if (l->nd && a->state == IB_PORT_ACTIVE && !(netif_running(l->nd) && netif_carrier_ok(l->nd))) {
		a->state = IB_PORT_DOWN;
		a->phys_state = netif_running(l->nd) ? IB_PORT_PHYS_STATE_POLLING : IB_PORT_PHYS_STATE_DISABLED;
	}
	a->active_width = l->width;
	a->active_speed = l->speed;
	a->lid = l->lid; a->lmc = l->lmc; a->sm_lid = l->sm_lid; a->sm_sl = l->sm_sl;
	a->port_cap_flags = l->cap_mask;
	a->subnet_prefix = l->roce ? 0 : 0xfe80000000000000ULL;
	a->gid_tbl_len = l->roce ? 16 : 8;
	a->pkey_tbl_len = l->roce ? 1 : 128;
	a->max_msg_sz = 0x40000000;
	a->max_mtu = IB_MTU_4096; a->active_mtu = l->mtu;
	a->max_vl_num = 4;
	return 0;
}

static int q_immutable(struct ib_device *d, u32 port, struct ib_port_immutable *im)
{
	struct ib_port_attr a;
	int r;

	im->core_cap_flags = L(d)->roce ? RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP : RDMA_CORE_PORT_IBA_IB;
	r = ib_query_port(d, port, &a);
	if (r)
		return r;
	im->gid_tbl_len = a.gid_tbl_len;
	im->pkey_tbl_len = a.pkey_tbl_len;
	im->max_mad_size = IB_MGMT_MAD_SIZE;
	return 0;
}

static enum rdma_link_layer q_ll(struct ib_device *d, u32 port)
{
	return L(d)->roce ? IB_LINK_LAYER_ETHERNET : IB_LINK_LAYER_INFINIBAND;
}

static int q_gid(struct ib_device *d, u32 port, int i, union ib_gid *g)
{
	memset(g, 0, sizeof(*g));
	if (i == 0) {
		g->global.subnet_prefix = cpu_to_be64(0xfe80000000000000ULL);
		g->global.interface_id = cpu_to_be64(L(d)->guid);
	}
	return 0;
}

static int q_pkey(struct ib_device *d, u32 port, u16 i, u16 *p)
{
	*p = i ? 0 : 0xffff;
	return 0;
}

static int add_gid(const struct ib_gid_attr *a, void **ctx) { return 0; }
static int del_gid(const struct ib_gid_attr *a, void **ctx) { return 0; }

static void fw_str(struct ib_device *d, char *s)
{
	snprintf(s, IB_FW_VERSION_NAME_MAX, "28.43.1014");
}

#define SAT(v, max) ((v) > (max) ? (max) : (v))	/* PMA counters stick at their maximum */

static int process_mad(struct ib_device *d, int flags, u32 port, const struct ib_wc *wc,
		       const struct ib_grh *grh, const struct ib_mad *in, struct ib_mad *out,
		       size_t *osz, u16 *opk)
{
	struct labib *l = L(d);

	if (l->mad_fail)
		return IB_MAD_RESULT_FAILURE;
	if (in->mad_hdr.mgmt_class != IB_MGMT_CLASS_PERF_MGMT || in->mad_hdr.method != IB_MGMT_METHOD_GET)
		return IB_MAD_RESULT_SUCCESS;
	memset(out->data, 0, sizeof(out->data));
	switch (in->mad_hdr.attr_id) {
	case IB_PMA_CLASS_PORT_INFO: {
		struct ib_class_port_info *c = (void *)(out->data + 40);

		c->capability_mask = ext ? IB_PMA_CLASS_CAP_EXT_WIDTH : 0;
		break;
	}
	case IB_PMA_PORT_COUNTERS: {
		struct ib_pma_portcounters *p = (void *)(out->data + 40);

		p->symbol_error_counter = cpu_to_be16(SAT(l->symbol_error, 0xffffULL));
		p->link_error_recovery_counter = SAT(l->link_error_recovery, 0xffULL);
		p->link_downed_counter = SAT(l->link_downed, 0xffULL);
		p->port_rcv_errors = cpu_to_be16(SAT(l->rcv_errors, 0xffffULL));
		p->port_rcv_remphys_errors = cpu_to_be16(SAT(l->rcv_remphys, 0xffffULL));
		p->port_rcv_switch_relay_errors = cpu_to_be16(SAT(l->rcv_switch_relay, 0xffffULL));
		p->port_xmit_discards = cpu_to_be16(SAT(l->xmit_discards, 0xffffULL));
		p->port_xmit_constraint_errors = SAT(l->xmit_constraint, 0xffULL);
		p->port_rcv_constraint_errors = SAT(l->rcv_constraint, 0xffULL);
		p->link_overrun_errors = SAT(l->local_link_integrity, 0xfULL) << 4 | SAT(l->buffer_overrun, 0xfULL);
		p->vl15_dropped = cpu_to_be16(SAT(l->vl15_dropped, 0xffffULL));
		p->port_xmit_data = cpu_to_be32(SAT(l->xmit_data, 0xffffffffULL));
		p->port_rcv_data = cpu_to_be32(SAT(l->rcv_data, 0xffffffffULL));
		p->port_xmit_packets = cpu_to_be32(SAT(l->xmit_packets, 0xffffffffULL));
		p->port_rcv_packets = cpu_to_be32(SAT(l->rcv_packets, 0xffffffffULL));
		p->port_xmit_wait = cpu_to_be32(SAT(l->xmit_wait, 0xffffffffULL));
		break;
	}
	case IB_PMA_PORT_COUNTERS_EXT: {
		struct ib_pma_portcounters_ext *p = (void *)(out->data + 40);

		p->port_xmit_data = cpu_to_be64(l->xmit_data);
		p->port_rcv_data = cpu_to_be64(l->rcv_data);
		p->port_xmit_packets = cpu_to_be64(l->xmit_packets);
		p->port_rcv_packets = cpu_to_be64(l->rcv_packets);
		p->port_unicast_xmit_packets = cpu_to_be64(l->uni_xmit);
		p->port_unicast_rcv_packets = cpu_to_be64(l->uni_rcv);
		p->port_multicast_xmit_packets = cpu_to_be64(l->multi_xmit);
		p->port_multicast_rcv_packets = cpu_to_be64(l->multi_rcv);
		break;
	}
	default:
		return IB_MAD_RESULT_FAILURE;
	}
	return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY;
}

static struct rdma_hw_stats *hw_alloc(struct ib_device *d, u32 port)
{
	return rdma_alloc_hw_stats_struct(L(d)->desc, NHW, RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

static int hw_get(struct ib_device *d, struct rdma_hw_stats *s, u32 port, int index)
{
	memcpy(s->value, L(d)->hw, sizeof(L(d)->hw));
	return NHW;
}

static ssize_t hca_type_show(struct device *dev, struct device_attribute *a, char *b)
{
	return sysfs_emit(b, "MT4129\n");
}
static DEVICE_ATTR_RO(hca_type);
static ssize_t hw_rev_show(struct device *dev, struct device_attribute *a, char *b)
{
	return sysfs_emit(b, "0\n");
}
static DEVICE_ATTR_RO(hw_rev);
static ssize_t board_id_show(struct device *dev, struct device_attribute *a, char *b)
{
	return sysfs_emit(b, "LAB0000000001\n");
}
static DEVICE_ATTR_RO(board_id);
static struct attribute *lab_attrs[] = {
	&dev_attr_hca_type.attr, &dev_attr_hw_rev.attr, &dev_attr_board_id.attr, NULL
};
static const struct attribute_group lab_group = { .attrs = lab_attrs };

static const struct ib_device_ops ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,
	.uverbs_abi_ver = 1,
	.query_device = q_device,
	.query_port = q_port,
	.get_port_immutable = q_immutable,
	.get_link_layer = q_ll,
	.query_gid = q_gid,
	.query_pkey = q_pkey,
	.add_gid = add_gid,
	.del_gid = del_gid,
	.get_dev_fw_str = fw_str,
	.process_mad = process_mad,
	.alloc_hw_port_stats = hw_alloc,
	.get_hw_stats = hw_get,
	.device_group = &lab_group,
};

/* write an event number (enum ib_event_type: 9 PORT_ACTIVE, 10 PORT_ERR ...) */
static int ev_set(void *p, u64 v)
{
	struct labib *l = p;
	struct ib_event e = { .device = &l->ib, .element.port_num = 1, .event = v };

	ib_dispatch_event(&e);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(ev_fops, NULL, ev_set, "%llu\n");

static void files(struct labib *l)
{
	int i;

	l->dir = debugfs_create_dir(dev_name(&l->ib.dev), root);
#define F32(x) debugfs_create_u32(#x, 0600, l->dir, &l->x)
#define F64(x) debugfs_create_u64(#x, 0600, l->dir, &l->x)
	F32(state); F32(phys_state); F32(width); F32(speed); F32(lid); F32(lmc); F32(sm_lid); F32(sm_sl);
	F32(cap_mask); F32(mtu); F32(mad_fail);
	F64(symbol_error); F64(link_error_recovery); F64(link_downed); F64(rcv_errors); F64(rcv_remphys);
	F64(rcv_switch_relay); F64(xmit_discards); F64(xmit_constraint); F64(rcv_constraint);
	F64(local_link_integrity); F64(buffer_overrun); F64(vl15_dropped); F64(xmit_data); F64(rcv_data);
	F64(xmit_packets); F64(rcv_packets); F64(uni_xmit); F64(uni_rcv); F64(multi_xmit); F64(multi_rcv);
	F64(xmit_wait);
	for (i = 0; i < NHW; i++)
		debugfs_create_u64(hwname[i], 0600, l->dir, &l->hw[i]);
	debugfs_create_file("event", 0200, l->dir, l, &ev_fops);
}

static struct net_device *netdev_of(struct pci_dev *p)
{
	struct net_device *n, *f = NULL;

	rtnl_lock();
	for_each_netdev(&init_net, n)
		if (n->dev.parent == &p->dev) {
			f = n;
			dev_hold(f);
			break;
		}
	rtnl_unlock();
	return f;
}

static int add(int i)
{
	unsigned int dom, bus, dv, fn;
	struct labib *l;
	int k, r;

	if (sscanf(pci[i], "%x:%x:%x.%x", &dom, &bus, &dv, &fn) != 4)
		return -EINVAL;
	l = ib_alloc_device(labib, ib);
	if (!l)
		return -ENOMEM;
	l->pdev = pci_get_domain_bus_and_slot(dom, bus, PCI_DEVFN(dv, fn));
	if (!l->pdev || !l->pdev->dev.driver || !strncmp(l->pdev->dev.driver->name, "vfio", 4)) {
		pci_dev_put(l->pdev);
		ib_dealloc_device(&l->ib);
		return -ENODEV;
	}
	l->roce = i < nroce && roce[i];
	l->guid = 0xb8cef60300000000ULL + (i << 8);
	l->state = IB_PORT_ACTIVE; l->phys_state = IB_PORT_PHYS_STATE_LINK_UP;
	l->width = IB_WIDTH_4X; l->speed = l->roce ? IB_SPEED_EDR : IB_SPEED_NDR;
	l->lid = l->roce ? 0 : 7 + i; l->sm_lid = l->roce ? 0 : 1;
	l->cap_mask = l->roce ? 0x04010000 : 0xa751e848; l->mtu = IB_MTU_4096;
	for (k = 0; k < NHW; k++)
		l->desc[k].name = hwname[k];
	l->ib.node_type = RDMA_NODE_IB_CA;
	l->ib.node_guid = cpu_to_be64(l->guid);
	l->ib.phys_port_cnt = 1;
	l->ib.num_comp_vectors = 1;
	l->ib.dev.parent = &l->pdev->dev;
	snprintf(l->ib.node_desc, sizeof(l->ib.node_desc), "rdmalab %s", l->roce ? "roce" : "ib");
	ib_set_device_ops(&l->ib, &ops);
	if (l->roce) {
		l->nd = netdev_of(l->pdev);
		if (l->nd) {
			r = ib_device_set_netdev(&l->ib, l->nd, 1);
			if (r)
				goto bad;
		}
	}
	r = ib_register_device(&l->ib, name, NULL);
	if (r)
		goto bad;
	files(l);
	devs[i] = l;
	return 0;
bad:
	if (l->nd)
		dev_put(l->nd);
	pci_dev_put(l->pdev);
	ib_dealloc_device(&l->ib);
	return r;
}

static void del(int i)
{
	struct labib *l = devs[i];

	if (!l)
		return;
	devs[i] = NULL;
	debugfs_remove_recursive(l->dir);
	ib_unregister_device(&l->ib);
	if (l->nd)
		dev_put(l->nd);
	pci_dev_put(l->pdev);
	ib_dealloc_device(&l->ib);
}

static int notify(struct notifier_block *nb, unsigned long action, void *data)
{
	struct pci_dev *p = to_pci_dev((struct device *)data);
	int i;

	for (i = 0; i < npci; i++) {
		if (action == BUS_NOTIFY_UNBIND_DRIVER && devs[i] && devs[i]->pdev == p)
			del(i);
		else if (action == BUS_NOTIFY_BOUND_DRIVER && !devs[i] && !strcmp(pci[i], pci_name(p)) &&
			 strncmp(p->dev.driver->name, "vfio", 4))
			add(i);
	}
	return NOTIFY_OK;
}
static struct notifier_block nb = { .notifier_call = notify };

/* A line of the kernel's own log (facility 0), which no process can write. */
static ssize_t say_write(struct file *f, const char __user *u, size_t n, loff_t *pos)
{
	char line[256];
	size_t len = min(n, sizeof(line) - 1);

	if (copy_from_user(line, u, len))
		return -EFAULT;
	line[len] = 0;
	printk(KERN_ERR "%s", line);
	return n;
}
static const struct file_operations say_fops = { .owner = THIS_MODULE, .write = say_write };

/* As many lines as the number that is written. */
static int burst_set(void *data, u64 n)
{
	u64 i;

	for (i = 0; i < n; i++)
		printk(KERN_ERR "mlx5_core 0000:41:00.0: Port module event[error]: module 0, Cable error, %llu\n", i);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(burst_fops, NULL, burst_set, "%llu\n");

static void labib_exit(void)
{
	int i;

	bus_unregister_notifier(&pci_bus_type, &nb);
	for (i = 0; i < MAXDEV; i++)
		del(i);
	debugfs_remove_recursive(root);
}

static int __init labib_init(void)
{
	int i, r;

	root = debugfs_create_dir("labib", NULL);
	debugfs_create_file("say", 0200, root, NULL, &say_fops);
	debugfs_create_file_unsafe("burst", 0200, root, NULL, &burst_fops);
	for (i = 0; i < npci; i++) {
		r = add(i);
		if (r)		/* may come later */
			pr_info("labib: %s: %d\n", pci[i], r);
	}
	return bus_register_notifier(&pci_bus_type, &nb);
}
module_init(labib_init);
module_exit(labib_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("stand-in RDMA provider for the test lab");
