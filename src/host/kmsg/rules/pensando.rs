//! AMD Pensando.

use super::Caller::{Function, Interface};
use super::{Source, line};
use crate::model::kmsg::{MessageKind, MessageSource};

const IONIC: &[MessageSource] = &[MessageSource::Ionic];

#[rustfmt::skip]
pub(super) const SOURCES: &[Source] = &[
    Source { drivers: IONIC, file: "drivers/net/ethernet/pensando/ionic/ionic_main.c", lines: &[
        line(Function, "DEVCMD %s (%d) timeout after %ld secs", MessageKind::CommandTimeout),
        line(Function, "DEVCMD %s (%d) interrupted - FW is down", MessageKind::DeviceHealth),
        line(Function, "DEV_CMD %s (%d) error, %s (%d) failed", MessageKind::CommandFailed),
    ]},
    Source { drivers: IONIC, file: "drivers/net/ethernet/pensando/ionic/ionic_dev.c", lines: &[
        line(Function, "FW heartbeat stalled at %d", MessageKind::DeviceHealth),
    ]},
    Source { drivers: IONIC, file: "drivers/net/ethernet/pensando/ionic/ionic_lif.c", lines: &[
        line(Function, "Surprise FW stop, stopping queues", MessageKind::DeviceHealth),
        line(Function, "FW Up: LIFs restart failed - err %d", MessageKind::DeviceHealth),
        line(Function, "FW Down: Stopping LIFs", MessageKind::FirmwareReset),
        line(Interface, "Tx Timeout triggered - txq %d", MessageKind::TxTimeout),
        line(Interface, "Link up - %d Gbps", MessageKind::LinkUp),
        line(Interface, "Link down", MessageKind::LinkDown),
    ]},
    Source { drivers: IONIC, file: "drivers/net/ethernet/pensando/ionic/ionic_fw.c", lines: &[
        line(Function, "DEV_CMD firmware wait %s timed out", MessageKind::CommandTimeout),
    ]},
];
