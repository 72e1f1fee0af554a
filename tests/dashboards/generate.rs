//! Makes Grafana's classic JSON of the compact source.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::common::{promql, rules};
use crate::source::{Annotation, Column, Dashboard, Keep, Kind, Panel, Query, Row, Shared, Threshold, Variable};

/// Grafana 10.4's; later ones migrate it when they load it.
const SCHEMA: u32 = 39;

/// Lines of a panel at most: more can't be told apart.
const LINES: u32 = 20;

/// Rows of a table at most: who needs more chooses a rack or a host.
const ROWS: u32 = 100;

/// Points of a line over a whole fleet. A query's cost is its series times its points.
const POINTS: u32 = 120;

/// Labels of which a host or a fleet has so many that a panel is to show a part.
const MANY: [&str; 6] = ["instance", "device", "vf", "netdev", "pci_address", "pf"];

/// The dashboard as Grafana reads it.
pub fn dashboard(shared: &Shared, source: &Dashboard) -> Value {
    let maker = Maker { shared, source };
    let mut variables = vec![data_source_variable()];
    variables.extend(shared.variable.iter().chain(&source.variable).map(|variable| maker.variable(variable)));
    let annotations: Vec<_> =
        source.annotations.iter().map(|name| maker.annotation(&shared.annotation[name])).collect();
    json!({
        "id": null,
        "uid": source.uid,
        "title": source.title,
        "description": source.description,
        "tags": ["lanewatch"],
        "timezone": "browser",
        "editable": false,
        "graphTooltip": 1,
        "time": { "from": source.time, "to": "now" },
        "timepicker": { "refresh_intervals": ["30s", "1m", "5m", "15m", "1h"] },
        "refresh": "1m",
        "schemaVersion": SCHEMA,
        "version": 1,
        "links": [links()],
        "templating": { "list": variables },
        "annotations": { "list": annotations },
        "panels": maker.panels(),
    })
}

/// The expression with its parts and its selector in their places.
pub fn expression(shared: &Shared, source: &Dashboard, text: &str) -> String {
    let mut text = text.to_owned();
    for (name, part) in source.parts.iter().chain(&shared.parts) {
        text = text.replace(&format!("%({name})"), part);
    }
    text.replace('@', &shared.selector)
}

/// Where a row of a table, or a number, leads: the same time and data source, and one host where a row names it.
fn url(uid: &str, instance: bool) -> String {
    let variables = ["datasource", "job", "site", "rack"].map(|name| format!("${{{name}:queryparam}}")).join("&");
    // Two clusters may have hosts of one name.
    let host = if instance {
        "var-cluster=${__data.fields.cluster}&var-instance=${__data.fields.instance}"
    } else {
        "${cluster:queryparam}&${instance:queryparam}"
    };
    format!("/d/{uid}?{variables}&{host}&${{__url_time_range}}")
}

fn source_of_data() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

fn data_source_variable() -> Value {
    json!({
        "type": "datasource",
        "name": "datasource",
        "label": "Data Source",
        "description": "The Prometheus, or what speaks like one, that has lanewatch's metrics.",
        "query": "prometheus",
        "regex": "",
        "refresh": 1,
        "hide": 0,
        "includeAll": false,
        "multi": false,
        "skipUrlSync": false,
        "options": [],
        "current": {},
    })
}

fn links() -> Value {
    json!({
        "type": "dashboards",
        "title": "lanewatch",
        "tooltip": "The other dashboards, with the same time, data source and hosts.",
        "tags": ["lanewatch"],
        "asDropdown": true,
        "includeVars": true,
        "keepTime": true,
        "targetBlank": false,
        "icon": "external link",
        "url": "",
    })
}

fn steps(thresholds: &[Threshold]) -> Value {
    let steps: Vec<_> = thresholds.iter().map(|step| json!({ "color": step.color, "value": step.from })).collect();
    let plain = || vec![json!({ "color": "text", "value": null })];
    json!({ "mode": "absolute", "steps": if steps.is_empty() { plain() } else { steps } })
}

struct Maker<'s> {
    shared: &'s Shared,
    source: &'s Dashboard,
}

impl Maker<'_> {
    fn expression(&self, text: &str) -> String {
        expression(self.shared, self.source, text)
    }

    fn variable(&self, variable: &Variable) -> Value {
        let query = self.expression(&variable.query);
        // The host of a dashboard that is about one.
        let one = self.source.one_host && variable.name == "instance";
        let mut made = json!({
            "type": "query",
            "name": variable.name,
            "label": variable.label,
            "description": variable.description,
            "datasource": source_of_data(),
            "query": { "qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery" },
            "regex": "",
            "refresh": 2,
            "sort": 1,
            "hide": 0,
            "includeAll": !one,
            "multi": !one,
            "skipUrlSync": false,
            "options": [],
            "current": {},
        });
        if !one {
            made["allValue"] = json!(variable.all);
            made["current"] = json!({ "selected": true, "text": ["All"], "value": ["$__all"] });
        }
        made
    }

    fn annotation(&self, annotation: &Annotation) -> Value {
        let expr = self.expression(&annotation.expr);
        json!({
            "name": annotation.title,
            "datasource": source_of_data(),
            "enable": true,
            "hide": false,
            "iconColor": annotation.color,
            "target": { "refId": "Anno", "expr": expr, "interval": "60s" },
            "titleFormat": annotation.heading,
            "textFormat": annotation.text,
        })
    }

    fn panels(&self) -> Vec<Value> {
        let (mut panels, mut y, mut id) = (Vec::new(), 0, 0);
        for (index, row) in self.source.row.iter().enumerate() {
            let open = index == 0 || row.open;
            id += 1;
            let mut head = json!({
                "id": id,
                "type": "row",
                "title": row.title,
                "collapsed": !open,
                "gridPos": { "h": 1, "w": 24, "x": 0, "y": y },
                "panels": [],
            });
            let (own, end) = self.row(row, y + 1, &mut id);
            if open {
                panels.push(head);
                panels.extend(own);
                y = end;
            } else {
                // A folded row keeps its panels to itself and is one line high.
                head["panels"] = Value::Array(own);
                panels.push(head);
                y += 1;
            }
        }
        panels
    }

    /// Panels from left to right, a new line where the next one does not fit; and where the row ends.
    fn row(&self, row: &Row, top: u32, id: &mut usize) -> (Vec<Value>, u32) {
        let (mut panels, mut x, mut y, mut tallest) = (Vec::new(), 0, top, 0);
        for panel in &row.panel {
            if x + panel.width > 24 {
                (x, y, tallest) = (0, y + tallest, 0);
            }
            let place = json!({ "h": panel.height, "w": panel.width, "x": x, "y": y });
            *id += 1;
            panels.push(self.panel(panel, *id, &place));
            x += panel.width;
            tallest = tallest.max(panel.height);
        }
        (panels, y + tallest)
    }

    /// The panel's query, without the lines or rows that would be too many.
    fn limited(&self, panel: &Panel, query: &Query) -> String {
        let expr = self.expression(&query.expr);
        let best = match panel.keep {
            Keep::Highest => "topk",
            Keep::Lowest => "bottomk",
        };
        match panel.kind {
            Kind::Stat => expr,
            Kind::Timeseries | Kind::StateTimeline => {
                let many = MANY.iter().any(|label| query.legend.contains(&format!("{{{{{label}}}}}")));
                if many { format!("{best}({LINES}, {expr})") } else { expr }
            }
            Kind::Table => {
                // The rows of one host are what the reader came for.
                let many = !self.source.one_host && panel.column.iter().any(|column| column.of == "instance");
                match &panel.rows {
                    Some(rows) => {
                        format!("({expr}) and on ({}) {best}({ROWS}, {})", rows.on, self.expression(&rows.expr))
                    }
                    None if many => format!("{best}({ROWS}, {expr})"),
                    None => expr,
                }
            }
        }
    }

    fn panel(&self, panel: &Panel, id: usize, place: &Value) -> Value {
        let kind = match panel.kind {
            Kind::Stat => "stat",
            Kind::Table => "table",
            Kind::Timeseries => "timeseries",
            Kind::StateTimeline => "state-timeline",
        };
        let mut made = json!({
            "id": id,
            "type": kind,
            "title": panel.title,
            "description": panel.description,
            "datasource": source_of_data(),
            "gridPos": place,
            "targets": panel.query.iter().zip('A'..='Z').map(|(query, letter)| self.target(panel, query, letter)).collect::<Vec<_>>(),
            "fieldConfig": { "defaults": self.defaults(panel), "overrides": self.overrides(panel) },
            "options": options(panel),
        });
        if !self.source.one_host && matches!(panel.kind, Kind::Timeseries | Kind::StateTimeline) {
            made["maxDataPoints"] = json!(POINTS);
        }
        if panel.kind == Kind::Table {
            made["transformations"] = transformations(panel);
        }
        made
    }

    fn target(&self, panel: &Panel, query: &Query, letter: char) -> Value {
        let kind = panel.kind;
        let now = matches!(kind, Kind::Stat | Kind::Table);
        json!({
            "refId": letter.to_string(),
            "datasource": source_of_data(),
            "editorMode": "code",
            "expr": self.limited(panel, query),
            "format": if kind == Kind::Table { "table" } else { "time_series" },
            "instant": now,
            "range": !now,
            "legendFormat": if query.legend.is_empty() { "__auto" } else { &query.legend },
        })
    }

    fn mappings(&self, name: &str) -> Value {
        if name == RUNBOOK {
            let alert = |(check, alert): (String, String)| (check, json!({ "text": alert }));
            let options: Map<String, Value> = alerts_by_check().into_iter().map(alert).collect();
            // What fires no alert has no runbook.
            let rest = json!({ "type": "regex", "options": { "pattern": ".*", "result": { "text": " " } } });
            return json!([{ "type": "value", "options": options }, rest]);
        }
        let options: Map<String, Value> = self.shared.mapping[name]
            .iter()
            .enumerate()
            .map(|(index, mapped)| {
                (mapped.value.clone(), json!({ "text": mapped.text, "color": mapped.color, "index": index }))
            })
            .collect();
        json!([{ "type": "value", "options": options }])
    }

    fn defaults(&self, panel: &Panel) -> Value {
        let series = panel.kind == Kind::Timeseries;
        let mut defaults = json!({
            "unit": panel.unit,
            "color": { "mode": if series { "palette-classic" } else { "thresholds" } },
            "thresholds": steps(&panel.thresholds),
            "mappings": panel.mapping.as_deref().map_or_else(|| json!([]), |name| self.mappings(name)),
        });
        for (name, value) in [("min", panel.min), ("max", panel.max)] {
            if let Some(value) = value {
                defaults[name] = json!(value);
            }
        }
        if let Some(decimals) = panel.decimals {
            defaults["decimals"] = json!(decimals);
        }
        match panel.kind {
            Kind::Timeseries => defaults["custom"] = drawn(panel),
            Kind::StateTimeline => defaults["custom"] = json!({ "fillOpacity": 80, "lineWidth": 0 }),
            Kind::Table => defaults["custom"] = json!({ "align": "auto", "cellOptions": { "type": "auto" } }),
            Kind::Stat => {}
        }
        if let Some(uid) = &panel.link {
            defaults["links"] = json!([{ "title": "Show", "url": url(uid, false), "targetBlank": false }]);
        }
        defaults
    }

    fn overrides(&self, panel: &Panel) -> Vec<Value> {
        let mut overrides = Vec::new();
        for (query, letter) in panel.query.iter().zip('A'..) {
            let mut properties = Vec::new();
            if query.below {
                properties.push(json!({ "id": "custom.transform", "value": "negative-Y" }));
            }
            if query.dashed {
                properties.push(json!({ "id": "custom.lineStyle", "value": { "fill": "dash", "dash": [10, 10] } }));
                properties.push(json!({ "id": "custom.fillOpacity", "value": 0 }));
                properties.push(json!({ "id": "custom.stacking", "value": { "mode": "none", "group": "A" } }));
            }
            if !properties.is_empty() {
                overrides.push(json!({
                    "matcher": { "id": "byFrameRefID", "options": letter.to_string() },
                    "properties": properties,
                }));
            }
        }
        for (name, color) in &panel.colors {
            overrides.push(json!({
                "matcher": { "id": "byName", "options": name },
                "properties": [{ "id": "color", "value": { "mode": "fixed", "fixedColor": color } }],
            }));
        }
        overrides.extend(panel.column.iter().map(|column| self.column(panel, column)));
        overrides
    }

    fn column(&self, panel: &Panel, column: &Column) -> Value {
        let mut properties = vec![json!({ "id": "displayName", "value": column.name })];
        // A label that looks like a number is none: without this a port would be "1 b/s".
        let unit = if is_value(column) { column.unit.as_deref() } else { Some("string") };
        if let Some(unit) = unit {
            properties.push(json!({ "id": "unit", "value": unit }));
        }
        if let Some(decimals) = column.decimals {
            properties.push(json!({ "id": "decimals", "value": decimals }));
        }
        if let Some(width) = column.width {
            properties.push(json!({ "id": "custom.width", "value": width }));
        }
        if let Some(name) = &column.mapping {
            properties.push(json!({ "id": "mappings", "value": self.mappings(name) }));
        }
        if !column.thresholds.is_empty() {
            properties.push(json!({ "id": "thresholds", "value": steps(&column.thresholds) }));
        }
        if column.of == RUNBOOK {
            let link = json!({ "title": "Runbook of ${__value.text}", "url": RUNBOOKS, "targetBlank": true });
            properties.push(json!({ "id": "links", "value": [link] }));
            properties.push(json!({ "id": "mappings", "value": self.mappings(RUNBOOK) }));
        }
        if column.mapping.is_some() || !column.thresholds.is_empty() {
            properties.push(json!({ "id": "custom.cellOptions", "value": { "type": "color-text" } }));
        }
        if let Some(uid) = &column.link {
            let link = json!({ "title": "Show ${__value.text}", "url": url(uid, true), "targetBlank": false });
            properties.push(json!({ "id": "links", "value": [link] }));
        }
        json!({ "matcher": { "id": "byName", "options": field(panel, column) }, "properties": properties })
    }
}

/// The column that leads to the runbook of a finding, by its check.
const RUNBOOK: &str = "runbook";

/// Where runbooks are, as in the alerts; the text of a check's mapping is its alert's name.
const RUNBOOKS: &str = "https://lanewatch.example/runbooks/${__value.text}.md";

/// Which alert a check's findings fire: the one of the same name, else the one whose rule asks for it first.
pub fn alerts_by_check() -> BTreeMap<String, String> {
    let mut alerts = BTreeMap::new();
    for rule in rules::read("alerts/lanewatch.rules.yml").groups.iter().flat_map(|group| &group.rules) {
        let Some(alert) = &rule.alert else { continue };
        let found = promql::parse(&rule.expr).unwrap_or_else(|error| panic!("{alert}: {error}"));
        // The first selector is the finding that the alert is about; others only leave some of them out.
        let Some(first) = found.selectors.first().filter(|first| first.name == "lanewatch_finding") else { continue };
        for matcher in first.matchers.iter().filter(|matcher| matcher.label == "check") {
            for check in matcher.value.split('|') {
                let is_namesake = alert.to_lowercase() == check.replace('_', "");
                if is_namesake || !alerts.contains_key(check) {
                    alerts.insert(check.to_owned(), alert.clone());
                }
            }
        }
    }
    alerts
}

/// Whether a column shows the value of a query, and not a label.
fn is_value(column: &Column) -> bool {
    column.of.len() == 1 && column.of.starts_with(|c: char| c.is_ascii_uppercase())
}

/// The name of the field that a column shows.
fn field(panel: &Panel, column: &Column) -> String {
    match (is_value(column), panel.query.len()) {
        (true, 1) => "Value".to_owned(),
        (true, _) => format!("Value #{}", column.of),
        (false, _) => column.of.clone(),
    }
}

/// One row of all queries' answers for the same labels, and the columns in their order.
fn transformations(panel: &Panel) -> Value {
    let names: Vec<_> = panel.column.iter().map(|column| field(panel, column)).collect();
    let order: Map<String, Value> =
        names.iter().enumerate().map(|(index, name)| (name.clone(), json!(index))).collect();
    let mut made = Vec::new();
    if panel.query.len() > 1 {
        made.push(json!({ "id": "merge", "options": {} }));
    }
    made.push(json!({ "id": "filterFieldsByName", "options": { "include": { "names": names } } }));
    let organize = json!({ "excludeByName": {}, "indexByName": order, "renameByName": {} });
    made.push(json!({ "id": "organize", "options": organize }));
    Value::Array(made)
}

fn drawn(panel: &Panel) -> Value {
    json!({
        "drawStyle": if panel.bars { "bars" } else { "line" },
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": match (panel.bars, panel.stack) { (true, _) => 80, (_, true) => 40, _ => 0 },
        "gradientMode": "none",
        "showPoints": "never",
        "spanNulls": false,
        "stacking": { "mode": if panel.stack { "normal" } else { "none" }, "group": "A" },
        "axisPlacement": "auto",
        "axisLabel": "",
        "axisSoftMin": 0,
        "scaleDistribution": { "type": "linear" },
        "thresholdsStyle": { "mode": "off" },
    })
}

fn options(panel: &Panel) -> Value {
    match panel.kind {
        Kind::Stat => json!({
            "reduceOptions": { "calcs": ["lastNotNull"], "fields": "", "values": false },
            "orientation": "auto",
            "textMode": "auto",
            "colorMode": if panel.thresholds.is_empty() && panel.mapping.is_none() { "none" } else { "background" },
            "graphMode": "none",
            "justifyMode": "auto",
        }),
        Kind::Table => {
            let sort: Vec<_> = panel.sort.iter().map(|name| json!({ "displayName": name, "desc": true })).collect();
            json!({ "showHeader": true, "cellHeight": "sm", "frameIndex": 0, "sortBy": sort })
        }
        Kind::Timeseries => json!({
            "legend": { "displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": [] },
            "tooltip": { "mode": "multi", "sort": "desc" },
        }),
        Kind::StateTimeline => json!({
            "mergeValues": true,
            "showValue": "auto",
            "alignValue": "left",
            "rowHeight": 0.8,
            "legend": { "displayMode": "list", "placement": "bottom", "showLegend": false },
            "tooltip": { "mode": "single", "sort": "none" },
        }),
    }
}
