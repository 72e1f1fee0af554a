//! The `[collector]` table: which collectors run, which devices they read, and where queue pair maps are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::reader::TableReader;
use super::schema::{CollectorConfig, QidMapConfig};
use crate::host::collector::Filter;
use crate::host::qid_map::SPEC;
use crate::host::{COLLECTORS, ON_DEMAND, Spec};
use crate::model::sriov::{QidMapColumn, QidMapLayout};

/// The collectors that run, with the command line's switches.
pub fn collectors(read: &TableReader<'_>, config: &CollectorConfig, flags: &[(&str, bool)]) -> Vec<Spec> {
    for (key, list) in [("disabled", &config.disabled), ("enabled", &config.enabled)] {
        for (index, name) in list.iter().enumerate() {
            if !COLLECTORS.iter().any(|spec| spec.name == *name) {
                let names: Vec<&str> = COLLECTORS.iter().map(|spec| spec.name).collect();
                let allowed = format!("a collector; the collectors are {}", names.join(", "));
                read.not_allowed(&format!("{key}[{index}]"), name, &allowed);
            }
        }
    }
    let runs = |spec: &&Spec| {
        let flag = flags.iter().rev().find(|(name, _)| *name == spec.name).map(|(_, on)| *on);
        let listed = |list: &[String]| list.iter().any(|name| *name == spec.name);
        let wanted = !ON_DEMAND.contains(&spec.name) || listed(&config.enabled);
        flag.unwrap_or_else(|| wanted && !listed(&config.disabled))
    };
    COLLECTORS.iter().filter(runs).copied().collect()
}

/// The devices that are read.
pub fn filter(read: &TableReader<'_>, include: Option<&str>, exclude: Option<&str>) -> Filter {
    Filter {
        include: include.and_then(|text| read.pattern("device-include", text)),
        exclude: exclude.and_then(|text| read.pattern("device-exclude", text)),
    }
}

/// The kubelet's socket on a host with this root; `None` if the path is not allowed.
pub fn kubelet_socket(read: &TableReader<'_>, socket: &Path, root: &Path) -> Option<PathBuf> {
    let below = socket.strip_prefix("/").ok().filter(|_| socket.file_name().is_some());
    if below.is_none() {
        let allowed = "an absolute path such as /var/lib/kubelet/pod-resources/kubelet.sock";
        read.not_allowed("kubelet-socket", &socket.to_string_lossy(), allowed);
    }
    below.map(|below| root.join(below))
}

/// The layout of queue pair maps on a host with this root, sysfs and procfs. `None` if it is not configured, which is an
/// error where the collector is to run.
pub fn layout(
    read: &TableReader<'_>,
    config: Option<&QidMapConfig>,
    collectors: &[Spec],
    (root, sysfs, procfs): &(PathBuf, PathBuf, PathBuf),
) -> Option<Arc<QidMapLayout>> {
    let Some(config) = config else {
        if collectors.iter().any(|spec| spec.name == SPEC.name) {
            read.error("qid-map", "is missing: the collector qid_map needs the path and the columns of the maps");
        }
        return None;
    };
    let read = read.table("qid-map.");
    let path = Path::new(&config.path);
    if !path.is_absolute() || path.file_name().is_none() {
        read.not_allowed("path", &config.path, "a path such as /sys/class/infiniband/*/device/sriov/*/qid_map");
    }
    let trees = [("/sys", sysfs), ("/proc", procfs), ("/", root)];
    let below = trees.iter().find_map(|(top, tree)| Some(tree.join(path.strip_prefix(top).ok()?)));
    let mut columns = Vec::new();
    for (index, name) in config.columns.iter().enumerate() {
        let key = format!("columns[{index}]");
        match QidMapColumn::ALL.iter().find(|(known, _)| known == name) {
            Some((_, column)) if *column == QidMapColumn::Other || !columns.contains(column) => columns.push(*column),
            Some(_) => read.error(&key, format!("{name:?} is a duplicate")),
            None => {
                let names = QidMapColumn::ALL.map(|(name, _)| name);
                read.not_allowed(&key, name, &format!("one of {}", names.join(", ")));
            }
        }
    }
    if !columns.contains(&QidMapColumn::Global) {
        read.error("columns", "one of them must be \"global\"");
    }
    let path = below.unwrap_or_else(|| path.to_owned());
    Some(Arc::new(QidMapLayout { path, columns, hexadecimal: config.hexadecimal }))
}
