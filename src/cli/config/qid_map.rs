//! Makes a layout of the configuration's `[collector.qid-map]`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{ConfigError, QidMapConfig};
use crate::host::Spec;
use crate::host::qid_map::SPEC;
use crate::host::qid_map::{QidMapColumn, QidMapLayout};

/// The layout, on a host whose root, sysfs and procfs are these. Collectors that run need it where that of the maps is
/// one of them.
///
/// # Errors
/// A value that is not allowed, with its key and what is; or the collector is to run and there is no such table.
pub fn layout(
    file: &Path,
    table: Option<&QidMapConfig>,
    collectors: &[Spec],
    (root, sysfs, procfs): &(PathBuf, PathBuf, PathBuf),
) -> Result<Option<Arc<QidMapLayout>>, ConfigError> {
    let wrong = |key: &str, message: String| {
        Err(ConfigError::Value { file: file.to_owned(), key: format!("collector.{key}"), message })
    };
    let Some(table) = table else {
        if collectors.iter().any(|spec| spec.name == SPEC.name) {
            let message = "the collector qid_map runs only with this table, which says where the maps are and how \
                           their rows look";
            return wrong("qid-map", message.to_owned());
        }
        return Ok(None);
    };
    let written = Path::new(&table.path);
    if !written.is_absolute() || written.file_name().is_none() {
        return wrong(
            "qid-map.path",
            format!("{:?} is not a path such as /sys/class/infiniband/*/device/sriov/*/qid_map", table.path),
        );
    }
    let trees = [("/sys", sysfs), ("/proc", procfs), ("/", root)];
    let below = trees.iter().find_map(|(top, tree)| Some(tree.join(written.strip_prefix(top).ok()?)));
    let mut columns = Vec::new();
    for name in &table.columns {
        match QidMapColumn::ALL.iter().find(|(known, _)| known == name) {
            Some((_, column)) if *column == QidMapColumn::Other || !columns.contains(column) => columns.push(*column),
            Some(_) => return wrong("qid-map.columns", format!("{name:?} stands twice")),
            None => {
                let names = QidMapColumn::ALL.map(|(name, _)| name);
                return wrong("qid-map.columns", format!("{name:?} is not one of {}", names.join(", ")));
            }
        }
    }
    if !columns.contains(&QidMapColumn::Global) {
        return wrong("qid-map.columns", "one of them must be \"global\"".to_owned());
    }
    let path = below.unwrap_or_else(|| written.to_owned());
    Ok(Some(Arc::new(QidMapLayout { path, columns, hexadecimal: table.hexadecimal })))
}
