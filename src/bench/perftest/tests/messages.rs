//! What went wrong.

use super::super::*;
use super::settings;
use crate::model::benchmark::Failure;

fn trouble(text: &str) -> PerftestFailure {
    let report = from_text(text);
    assert!(!report.has_values(), "no value, and not 0");
    report.trouble.unwrap()
}

#[test]
fn a_queue_pair_that_stays_down_for_a_gid_of_zeros() {
    let zero = " GID: 00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00\n";
    let text = format!(
        "                    RDMA_Write BW Test\n Dual-port       : OFF          Device         : mlx5_6\n Link type       \
         : Ethernet\n GID index       : 2\n local address: LID 0000 QPN 0x0044\n{zero} remote address: LID 0000 QPN \
         0x0045\n{zero}Failed to modify QP 68 to RTR\n Unable to Connect the HCA's through the link\n"
    );
    let found = trouble(&text);
    assert_eq!(found.failure, Failure::QpSetup);
    assert!(found.text.contains("QP to RTR") && found.text.contains("all zeros"), "{}", found.text);
    let report = from_text(&text);
    assert_eq!((report.device.as_deref(), report.gid_index), (Some("mlx5_6"), Some(2)));
    let other = trouble(&text.replace(":00\n", ":0a\n"));
    assert!(other.text.contains("GID index, MTU and addresses"), "{}", other.text);
}

#[test]
fn two_messages_in_one_line() {
    let text = "Couldn't connect to 198.51.100.7:18599\nUnable to open file descriptor for socket connection Unable to init \
                the socket connection\n";
    let found = trouble(text);
    assert_eq!(found.failure, Failure::TcpSetup);
    assert!(found.text.contains("server 198.51.100.7:18599 unreachable"), "{}", found.text);
    assert!(found.text.contains("no fault of the fabric"));
    let (_, second) = text.split_once('\n').unwrap();
    assert_eq!(trouble(second).failure, Failure::TcpSetup);
}

#[test]
fn a_failed_completion_says_which_and_how_far_it_came() {
    let text = "Completion with error at client\n  Failed status 4: wr_id 0 syndrom 0x4f\nscnt=640, ccnt=512\n  Failed to \
                complete run_iter_bw function successfully\n";
    let found = trouble(text);
    assert_eq!((found.failure, found.syndrome, found.progress), (Failure::Completion, Some(0x4f), Some((512, 640))));
    assert_eq!(found.completion.map(|c| (c.code, c.name)), Some((4, "local protection error")));
    assert!(found.text.contains("after 512 of 640 were completed"), "{}", found.text);
    let retry = trouble(&text.replace("status 4", "status 12"));
    assert!(
        retry.text.contains("status 12 (transport retry exceeded)") && retry.text.contains("VF map"),
        "{}",
        retry.text
    );
    assert_eq!(trouble("Completion with error at server\n").completion, None);
    assert_eq!(WorkCompletion::of(99).name, "unknown status");
}

#[test]
fn a_port_that_is_down() {
    let text = " Port number 2 state is Down\n Couldn't set the link layer\n Couldn't get context for the device\n";
    let found = trouble(text);
    assert_eq!((found.failure, found.text.as_str()), (Failure::PortDown, "port 2 is down: look at port_down"));
}

#[test]
fn memory_that_cannot_be_registered_and_a_crash() {
    let end = settings("Send BW", "siw_eth7", "Ethernet", " Gid index       : 0\n").replace("type : IB", "type : IW");
    let text = format!(
        "{end}Couldn't allocate MR\nfailed to create mr\nFailed to create MR\nSegmentation fault (core dumped)\n"
    );
    let found = trouble(&text);
    assert_eq!((found.failure, found.crashed), (Failure::MemoryRegistration, true));
    assert!(found.text.ends_with("then the program crashed"), "{}", found.text);
    let report = from_text(&text);
    assert_eq!((report.transport.as_deref(), report.gid_index), (Some("IW"), Some(0)));
}

#[test]
fn a_device_that_is_not_there() {
    let text = " Did not detect devices \n If device exists, check if driver is up\n Unable to find the Infiniband/RoCE device\n";
    assert_eq!(trouble(text).failure, Failure::DeviceMissing);
    assert_eq!(
        from_text("Segmentation fault (core dumped)\n").trouble,
        None,
        "a crash alone says nothing of the device"
    );
}
