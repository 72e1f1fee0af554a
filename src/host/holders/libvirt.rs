//! Libvirt's files: live statuses (`/run/libvirt/qemu/*.xml`) and definitions (`/etc/libvirt/qemu/*.xml`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::ResolveResult;
use quick_xml::reader::NsReader;

use super::content;
use crate::host::collector::{DeviceReader, ReadContext};
use crate::host::io::{DirStamp, Roots, reason_of};
use crate::model::holder::{Claim, Domain, Libvirt, VmIdentity, VmManager};
use crate::model::ids::PciAddress;
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;
use crate::model::sriov::Mac;
use crate::model::text;

/// Longest file that is read: a large domain has about 50 KiB.
const LONGEST: usize = 1 << 20;

/// The reader.
#[derive(Default)]
pub struct LibvirtReader {
    live: XmlDirectory<Domain>,
    defined: XmlDirectory<Domain>,
}

/// One directory of libvirt's: a file for each domain or network.
pub(super) struct XmlDirectory<T> {
    /// Files by path: the stamp when read and what is in it. Libvirt replaces files whole, so an equal stamp means an
    /// unchanged file.
    files: BTreeMap<PathBuf, (DirStamp, Option<T>)>,
    /// Why something could not be read.
    trouble: Option<ReadError>,
    there: bool,
}

impl<T> Default for XmlDirectory<T> {
    fn default() -> Self {
        Self { files: BTreeMap::new(), trouble: None, there: false }
    }
}

/// Where live statuses and definitions are, of domains and of networks.
pub fn directories(roots: &Roots) -> Vec<PathBuf> {
    vec![roots.run_libvirt.join("qemu"), roots.libvirt.join("qemu"), networks(roots)]
}

/// Where the definitions of networks are.
pub(super) fn networks(roots: &Roots) -> PathBuf {
    roots.libvirt.join("qemu/networks")
}

impl DeviceReader for LibvirtReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let (run, etc) = (cx.host.roots.run_libvirt.join("qemu"), cx.host.roots.libvirt.join("qemu"));
        self.live.read(cx, &run, domain);
        self.defined.read(cx, &etc, domain);
        let mut domains: Vec<Domain> = self.live.all().cloned().collect();
        for domain in self.defined.all() {
            if !domains.iter().any(|live| live.name == domain.name) {
                domains.push(domain.clone());
            }
        }
        let bus = cx.host.sysfs.join("bus/pci/devices");
        if cx.host.io.stamp(&bus).is_ok() {
            for claim in domains.iter_mut().flat_map(|domain| &mut domain.claims) {
                let entry = cx.host.io.link(&bus.join(claim.address.to_string()));
                // An unreadable entry is present all the same.
                claim.present = Some(!entry.is_err_and(|error| reason_of(&error).is_none()));
            }
        }
        let readable = self.live.trouble.is_none() && self.defined.trouble.is_none();
        vec![Arc::new(Libvirt { domains, readable, has_live: self.live.there })]
    }
}

impl<T> XmlDirectory<T> {
    /// What is in its files.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.files.values().filter_map(|(_, content)| content.as_ref())
    }

    /// Reads the files that changed. `parse` gives `None` for a damaged one.
    pub(super) fn read(&mut self, cx: &mut ReadContext<'_>, path: &Path, parse: fn(&[u8]) -> Option<T>) {
        let listed = cx.host.io.list(path);
        (self.there, self.trouble) = (listed.is_ok(), listed.as_ref().err().and_then(reason_of));
        let names = listed.unwrap_or_default();
        let paths: Vec<PathBuf> = names.iter().filter(|name| is_xml(name)).map(|name| path.join(name)).collect();
        self.files.retain(|known, _| paths.contains(known));
        for path in paths {
            let Ok(stamp) = cx.host.io.stamp(&path) else { continue };
            if self.files.get(&path).is_none_or(|(known, _)| *known != stamp) {
                self.read_file(cx, path, stamp, parse);
            }
        }
    }

    fn read_file(&mut self, cx: &mut ReadContext<'_>, path: PathBuf, stamp: DirStamp, parse: fn(&[u8]) -> Option<T>) {
        let content = match content(&*cx.host.io, &path, LONGEST) {
            // A file that is being written is read again on the next pass.
            Ok(bytes) if bytes.is_empty() => return,
            Ok(bytes) => parse(&bytes).or_else(|| {
                cx.fault(&path, ReadError::Malformed);
                None
            }),
            Err(error) => {
                match reason_of(&error) {
                    Some(ReadError::Permission) => self.trouble = Some(ReadError::Permission),
                    Some(reason) => cx.fault(&path, reason),
                    None => {}
                }
                self.files.remove(&path);
                return;
            }
        };
        self.files.insert(path, (stamp, content));
    }
}

fn is_xml(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "xml")
}

/// Attributes of an element by name.
pub(super) fn attributes(element: &BytesStart<'_>) -> BTreeMap<String, String> {
    let mut all = element.attributes();
    let pairs = all.with_checks(false).filter_map(Result::ok).filter_map(|attribute| {
        let name = attribute.key.into_inner().to_owned();
        Some((name, attribute.normalized_value(XmlVersion::Implicit1_0).ok()?.into_owned()))
    });
    pairs.collect()
}

/// Parses a domain's file: a `domstatus` with a `domain` in it, or a `domain` alone. `None` if it is anything else.
pub fn domain(bytes: &[u8]) -> Option<Domain> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut reader = NsReader::from_str(text);
    let mut state = DomainParser::default();
    loop {
        match reader.read_resolved_event().ok()? {
            (space, Event::Start(element)) => state.open(&space, &element),
            (space, Event::Empty(element)) => {
                state.open(&space, &element);
                state.close();
            }
            (_, Event::End(_)) => state.close(),
            (_, Event::Text(text)) => {
                if let Some(value) = state.text() {
                    value.push_str(&text);
                }
            }
            (_, Event::GeneralRef(reference)) => {
                if let Some(value) = state.text() {
                    value.push_str(quick_xml::escape::resolve_predefined_entity(&reference).unwrap_or_default());
                }
            }
            (_, Event::Eof) => break,
            _ => {}
        }
    }
    state.finish()
}

/// Where in the file the reader is, and what was found so far.
#[derive(Default)]
struct DomainParser {
    path: Vec<String>,
    name: String,
    uuid: String,
    title: String,
    project: Option<Arc<str>>,
    /// Whose metadata is being read.
    metadata: Option<VmManager>,
    /// Whose metadata there is.
    manager: Option<VmManager>,
    state: Option<Arc<str>>,
    reason: Option<Arc<str>>,
    pid: Option<u32>,
    id: Option<u32>,
    incoming: bool,
    device: Option<HostDevice>,
    claims: Vec<Claim>,
}

/// The device that is being read.
#[derive(Default)]
struct HostDevice {
    /// Whether its source is a PCI function of the host, as its own element says.
    given: bool,
    /// Whether its live form (`actual`) says so.
    actual: bool,
    mac: Option<Mac>,
    vlan: Option<u16>,
    address: Option<PciAddress>,
}

impl DomainParser {
    /// Whether the innermost elements are these.
    fn at(&self, names: &[&str]) -> bool {
        self.path.len() >= names.len() && self.path.iter().rev().zip(names.iter().rev()).all(|(a, b)| a == b)
    }

    /// The value that the text at this place belongs to.
    fn text(&mut self) -> Option<&mut String> {
        if self.at(&["domain", "name"]) {
            Some(&mut self.name)
        } else if self.at(&["domain", "uuid"]) {
            Some(&mut self.uuid)
        } else if self.metadata == Some(VmManager::OpenStack) && self.at(&["metadata", "instance", "name"]) {
            Some(&mut self.title)
        } else {
            None
        }
    }

    fn open(&mut self, space: &ResolveResult<'_>, element: &BytesStart<'_>) {
        let name = element.local_name().into_inner().to_owned();
        let values = attributes(element);
        let get = |key: &str| values.get(key).map(String::as_str);
        self.path.push(name);
        let innermost = self.path.last().map(String::as_str).unwrap_or_default();
        match innermost {
            "domstatus" => {
                self.state = get("state").map(text::name);
                self.reason = get("reason").map(text::name);
                // 0 until QEMU was started.
                self.pid = get("pid").and_then(|pid| pid.parse().ok()).filter(|pid| *pid != 0);
            }
            "job" if self.at(&["domstatus", "job"]) => self.incoming = get("async") == Some("migration in"),
            _ if self.path.iter().rev().nth(1).is_some_and(|above| above == "metadata") => {
                self.metadata = manager_of(space);
                self.manager = self.manager.or(self.metadata);
            }
            "project" if self.metadata == Some(VmManager::OpenStack) && self.at(&["instance", "owner", "project"]) => {
                self.project = get("uuid").map(Arc::from);
            }
            "domain" => self.id = get("id").and_then(|id| id.parse().ok()),
            "hostdev" if self.at(&["devices", "hostdev"]) => {
                self.device = Some(HostDevice { given: get("type") == Some("pci"), ..HostDevice::default() });
            }
            "interface" if self.at(&["devices", "interface"]) => {
                self.device = Some(HostDevice { given: get("type") == Some("hostdev"), ..HostDevice::default() });
            }
            _ => self.inside(innermost.to_owned().as_str(), &get),
        }
    }

    /// An element inside of a device. The address below `source` is the host's; the one beside it is the guest's.
    fn inside<'a>(&mut self, innermost: &str, get: &impl Fn(&str) -> Option<&'a str>) {
        let below_actual = self.at(&["interface", "actual", "source", "address"]);
        let below_source = self.at(&["interface", "source", "address"]) || self.at(&["hostdev", "source", "address"]);
        let Some(device) = &mut self.device else { return };
        match innermost {
            "actual" => device.actual = get("type") == Some("hostdev"),
            "mac" => device.mac = get("address").and_then(Mac::parse),
            "tag" => device.vlan = get("id").and_then(|id| id.parse().ok()),
            "address" if (below_actual && device.actual) || (below_source && device.given) => {
                device.address = address(get);
            }
            _ => {}
        }
    }

    fn close(&mut self) {
        let closed = self.path.pop();
        let ends = matches!(closed.as_deref(), Some("hostdev" | "interface")) && self.at(&["devices"]);
        if let Some(device) = self.device.take_if(|_| ends)
            && let Some(address) = device.address
        {
            self.claims.push(Claim { address, mac: device.mac, vlan: device.vlan, present: None });
        }
    }

    fn finish(self) -> Option<Domain> {
        let live = match &self.state {
            Some(state) => !matches!(&**state, "shutoff" | "crashed" | "nostate"),
            None => self.id.is_some(),
        };
        let known = |value: &str| Some(value.trim()).filter(|value| !value.is_empty()).map(text::name);
        let identity = VmIdentity {
            manager: Some(self.manager.unwrap_or(VmManager::Libvirt)),
            uuid: known(&self.uuid),
            title: known(&self.title),
            project: self.project,
        };
        Some(Domain {
            identity,
            name: Some(self.name.trim()).filter(|name| !name.is_empty()).map(text::name)?,
            live,
            state: self.state,
            reason: self.reason,
            pid: self.pid,
            id: self.id,
            incoming: self.incoming,
            incoming_job: self.incoming,
            claims: self.claims,
        })
    }
}

/// Whose metadata an element is, by its namespace: prefixes are free, and the end of the address is a version.
fn manager_of(space: &ResolveResult<'_>) -> Option<VmManager> {
    let ResolveResult::Bound(space) = space else { return None };
    match space.0 {
        uri if uri.starts_with("http://openstack.org/xmlns/libvirt/nova/") => Some(VmManager::OpenStack),
        uri if uri.starts_with("http://ovirt.org/vm/") => Some(VmManager::Ovirt),
        _ => None,
    }
}

/// A function's address: each part hexadecimal with `0x`, or decimal.
pub(super) fn address<'a>(get: &impl Fn(&str) -> Option<&'a str>) -> Option<PciAddress> {
    let number = |key: &str| {
        let text = get(key)?.trim();
        match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    };
    Some(PciAddress {
        domain: if get("domain").is_some() { number("domain")? } else { 0 },
        bus: u8::try_from(number("bus")?).ok()?,
        device: u8::try_from(number("slot")?).ok().filter(|slot| *slot < 32)?,
        function: u8::try_from(number("function")?).ok().filter(|function| *function < 8)?,
    })
}
