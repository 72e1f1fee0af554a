//! The compact source of the dashboards: `dashboards/source/*.toml`. What all dashboards share is in `shared.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// What all dashboards share.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// What `@` stands for in an expression: the matchers of the variables.
    pub selector: String,
    /// Variables of every dashboard, in their order, after the data source.
    pub variable: Vec<Variable>,
    /// Annotations by name.
    pub annotation: BTreeMap<String, Annotation>,
    /// Sets of value mappings by name.
    pub mapping: BTreeMap<String, Vec<Mapped>>,
    /// Parts of expressions by name: `%(name)`.
    #[serde(rename = "let")]
    pub parts: BTreeMap<String, String>,
}

/// A variable.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    pub name: String,
    pub label: String,
    pub description: String,
    pub query: String,
    /// What "All" stands for: `.+`, or `.*` where the label need not be there.
    pub all: String,
}

/// An annotation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Annotation {
    pub title: String,
    pub expr: String,
    pub color: String,
    pub heading: String,
    pub text: String,
}

/// One value and how it is shown.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapped {
    pub value: String,
    pub text: String,
    pub color: String,
}

/// A dashboard.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dashboard {
    pub uid: String,
    pub title: String,
    pub description: String,
    #[serde(default = "six_hours")]
    pub time: String,
    #[serde(default)]
    pub variable: Vec<Variable>,
    /// One host is chosen, not several or all.
    #[serde(default)]
    pub one_host: bool,
    pub annotations: Vec<String>,
    #[serde(default, rename = "let")]
    pub parts: BTreeMap<String, String>,
    pub row: Vec<Row>,
}

fn six_hours() -> String {
    "now-6h".to_owned()
}

/// A row of panels.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub title: String,
    /// Shown when the dashboard opens, as the first row always is; the others are folded and ask nothing until then.
    #[serde(default)]
    pub open: bool,
    pub panel: Vec<Panel>,
}

/// What draws a panel.
#[derive(Debug, Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Stat,
    Table,
    Timeseries,
    StateTimeline,
}

/// What is kept of lines or rows of which there may be thousands.
#[derive(Debug, Deserialize, Clone, Copy, PartialEq, Eq, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// The largest values.
    #[default]
    Highest,
    /// The smallest.
    Lowest,
}

/// The rows that a table keeps: those with the largest values of an expression without an aggregation, for the order of
/// what an aggregation gives is not always the same.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    pub expr: String,
    /// Labels by which the other queries' rows are found.
    pub on: String,
}

/// A panel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Panel {
    pub kind: Kind,
    pub title: String,
    pub description: String,
    pub unit: String,
    /// Of 24.
    pub width: u32,
    pub height: u32,
    pub query: Vec<Query>,
    pub decimals: Option<u32>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// Name of a set of mappings.
    pub mapping: Option<String>,
    /// Colours from these values on; the first holds below them all.
    #[serde(default)]
    pub thresholds: Vec<Threshold>,
    /// Areas on top of each other.
    #[serde(default)]
    pub stack: bool,
    /// Bars in place of lines: for what happens now and then.
    #[serde(default)]
    pub bars: bool,
    /// Colours of series by their names.
    #[serde(default)]
    pub colors: BTreeMap<String, String>,
    /// Columns of a table, in their order.
    #[serde(default)]
    pub column: Vec<Column>,
    /// What of many lines or rows is kept.
    #[serde(default)]
    pub keep: Keep,
    /// Which rows a table of several queries keeps.
    pub rows: Option<Rows>,
    /// Heading of the column that a table is sorted by, the largest first.
    pub sort: Option<String>,
    /// uid of the dashboard that a click on a stat opens.
    pub link: Option<String>,
}

/// A colour from a value on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    pub from: Option<f64>,
    pub color: String,
}

/// A query.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Query {
    pub expr: String,
    #[serde(default)]
    pub legend: String,
    /// Drawn below the axis.
    #[serde(default)]
    pub below: bool,
    /// Drawn as a dashed line: what something is held against.
    #[serde(default)]
    pub dashed: bool,
}

/// A column of a table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// A label, or the letter of a query: its value.
    pub of: String,
    pub name: String,
    pub unit: Option<String>,
    pub decimals: Option<u32>,
    pub mapping: Option<String>,
    #[serde(default)]
    pub thresholds: Vec<Threshold>,
    /// uid of the dashboard that a click opens, with the row's `instance`.
    pub link: Option<String>,
    pub width: Option<u32>,
}

/// The folder of the dashboards.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards")
}

/// What all share, and every dashboard, by the name of its file.
pub fn read() -> (Shared, BTreeMap<String, Dashboard>) {
    let mut dashboards = BTreeMap::new();
    for entry in fs::read_dir(folder().join("source")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if name != "shared" {
            dashboards.insert(name, load(&path));
        }
    }
    (load(&folder().join("source/shared.toml")), dashboards)
}

fn load<T: DeserializeOwned>(path: &Path) -> T {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
