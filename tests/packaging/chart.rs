//! The chart and the image: linted, rendered by Helm's own library, and held against the schemas of Kubernetes and of the
//! Prometheus operator.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::common::tools::{Tool, require, skip};
use crate::{root, succeed};

const CHART: &str = "packaging/helm/lanewatch";
const VALUES: [&str; 5] = ["default", "operator", "service", "privileged", "tls"];

/// What the chart gives for each file of values, by its name.
fn rendered() -> Option<BTreeMap<&'static str, Value>> {
    let mut command = Command::new(require(Tool::Helm)?);
    let file = |name: &str| format!("packaging/helm/values/{name}.yaml");
    command.args(["tests/packaging/chart.py", CHART]).args(VALUES.map(file));
    let mut answer: Value = serde_json::from_str(&succeed(&mut command)).unwrap();
    let each = VALUES.map(|name| (name, answer[file(name)].take()));
    let shipped = fs::read_dir(root().join("packaging/helm/values")).unwrap().count();
    assert_eq!(shipped, VALUES.len(), "every file of values is tried");
    Some(each.into())
}

fn documents(answer: &Value) -> &Vec<Value> {
    answer["documents"].as_array().unwrap()
}

fn kind<'a>(answer: &'a Value, kind: &str) -> Vec<&'a Value> {
    documents(answer).iter().filter(|document| document["kind"] == kind).collect()
}

#[test]
fn helm_finds_nothing_and_every_document_is_as_the_schemas_have_it() {
    let Some(rendered) = rendered() else { return };
    let mut operators = Vec::new();
    for (name, answer) in &rendered {
        assert_eq!(answer["lint"]["errors"], json!([]), "{name}");
        // An icon is all that may be missing.
        for message in answer["lint"]["messages"].as_array().unwrap() {
            assert_eq!(message["error"], "icon is recommended", "{name}");
        }
        operators.extend(
            documents(answer).iter().filter(|document| document["apiVersion"] == "monitoring.coreos.com/v1").cloned(),
        );
    }
    let kinds = ["PodMonitor", "ServiceMonitor", "PrometheusRule"];
    assert!(kinds.iter().all(|kind| operators.iter().any(|document| document["kind"] == *kind)));
    assert!(valid(&operators).is_none_or(|valid| valid), "the operator's schemas");
    for (path, wrong) in [("/spec/podMetricsEndpoints/0/port", json!(3)), ("/spec/selector", Value::Null)] {
        let mut monitor = kind(&rendered["operator"], "PodMonitor")[0].clone();
        *monitor.pointer_mut(path).unwrap() = wrong;
        assert!(!valid(&[monitor]).unwrap_or(false), "{path}: the schemas say nothing");
    }
}

/// Whether the schemas of the operator's kinds allow all of these; none where they are not to be had.
fn valid(documents: &[Value]) -> Option<bool> {
    let folder = root().join(".cache/packaging/npm");
    if !folder.join("node_modules").is_dir() {
        skip("the operator's schemas are not there (tests/setup.sh installs them where npm is)");
        return None;
    }
    let program = folder.join("operator.mjs");
    fs::copy(root().join("tests/packaging/operator.mjs"), &program).unwrap();
    let mut child = Command::new("node")
        .arg(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&serde_json::to_vec(documents).unwrap()).unwrap();
    Some(child.wait().unwrap().success())
}

#[test]
fn a_pod_gets_no_more_than_it_is_given() {
    let Some(rendered) = rendered() else { return };
    for (name, answer) in &rendered {
        let pod = &kind(answer, "DaemonSet")[0]["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(
            (&pod["hostNetwork"], &pod["automountServiceAccountToken"]),
            (&json!(true), &json!(false)),
            "{name}"
        );
        assert_eq!(pod["hostPID"], Value::Null, "{name}");
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true, "{name}");
        assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]), "{name}");
        for mount in container["volumeMounts"].as_array().unwrap().iter().filter(|mount| mount["name"] != "state") {
            assert_eq!(mount["readOnly"], true, "{name}: {mount}");
        }
        assert!(container["resources"]["limits"]["memory"].is_string(), "{name}");
        let context = &container["securityContext"];
        let (user, add, privileged) =
            (&pod["securityContext"]["runAsUser"], &context["capabilities"]["add"], &context["privileged"]);
        match *name {
            "privileged" => assert_eq!(
                (user, add, privileged),
                (&json!(0), &json!(["SYS_PTRACE", "DAC_READ_SEARCH"]), &Value::Null)
            ),
            "tls" => assert_eq!((user, add, privileged), (&json!(0), &Value::Null, &json!(true))),
            _ => {
                assert_eq!((user, add, privileged), (&json!(65534), &Value::Null, &Value::Null), "{name}");
                assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
                assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
            }
        }
    }
    assert_eq!(
        kind(&rendered["privileged"], "DaemonSet")[0]["spec"]["template"]["spec"]["priorityClassName"],
        "system-node-critical"
    );
}

#[test]
fn the_program_takes_the_arguments_and_the_configuration_that_a_pod_has() {
    let Some(rendered) = rendered() else { return };
    let help = crate::common::run::lanewatch(&["serve", "--help"]).stdout;
    for (name, answer) in &rendered {
        let arguments = &kind(answer, "DaemonSet")[0]["spec"]["template"]["spec"]["containers"][0]["args"];
        for argument in arguments.as_array().unwrap().iter().skip(1) {
            let flag = argument.as_str().unwrap().split('=').next().unwrap();
            assert!(help.contains(&format!("{flag} ")) || help.contains(&format!("{flag}\n")), "{name}: {flag}");
        }
    }
    let config = kind(&rendered["tls"], "ConfigMap")[0]["data"]["lanewatch.toml"].as_str().unwrap().to_owned();
    let folder = tempfile::TempDir::new().unwrap();
    fs::write(folder.path().join("lanewatch.toml"), config).unwrap();
    let said = crate::common::run::lanewatch_in(folder.path(), &["config", "check", "--no-files", "lanewatch.toml"]);
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn rules_and_dashboards_are_those_of_the_repository() {
    let Some(rendered) = rendered() else { return };
    let text = fs::read_to_string(root().join("alerts/kubernetes/lanewatch.prometheusrule.yaml")).unwrap();
    let rules: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(
        kind(&rendered["operator"], "PrometheusRule")[0]["spec"]["groups"].as_array().unwrap().len(),
        rules["spec"]["groups"].as_array().unwrap().len()
    );
    assert_eq!(kind(&rendered["operator"], "PrometheusRule")[0]["spec"], rules["spec"]);
    let maps = kind(&rendered["operator"], "ConfigMap");
    let mut shipped = 0;
    for entry in fs::read_dir(root().join("dashboards")).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_some_and(|extension| extension == "json") {
            let name = entry.file_name().unwrap().to_str().unwrap();
            let content = fs::read_to_string(&entry).unwrap();
            assert!(maps.iter().any(|map| map["data"][name] == content.as_str()), "{name}");
            // An object of the API server's holds no more than 1 MiB.
            assert!(content.len() < 1 << 20, "{name}");
            shipped += 1;
        }
    }
    assert_eq!(maps.len(), shipped);
}

#[test]
fn the_plain_manifests_are_made_of_the_chart() {
    let Some(rendered) = rendered() else { return };
    let manifests = [
        ("daemonset", kind(&rendered["default"], "DaemonSet")),
        ("podmonitor", kind(&rendered["operator"], "PodMonitor")),
    ];
    for (name, documents) in manifests {
        let path = root().join(format!("packaging/kubernetes/{name}.yaml"));
        let made = "# Made from packaging/helm; LANEWATCH_UPDATE=1 cargo test --test packaging plain rewrites it.\n"
            .to_owned()
            + &serde_saphyr::to_string(documents[0]).unwrap();
        if std::env::var_os("LANEWATCH_UPDATE").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &made).unwrap();
        }
        assert!(fs::read_to_string(&path).unwrap() == made, "{} is not what the chart gives", path.display());
    }
}

#[test]
fn the_image_is_a_program_without_a_shell_or_a_name() {
    let dockerfile = fs::read_to_string(root().join("packaging/container/Dockerfile")).unwrap();
    let last = dockerfile.rsplit("\nFROM ").next().unwrap();
    assert!(
        last.contains("\nUSER 65534:65534\n") && last.contains("\nENTRYPOINT [\"/usr/bin/lanewatch\"]\n"),
        "{last}"
    );
    assert!(!last.contains("\nRUN "), "nothing runs in what is shipped");
    let version = format!("org.opencontainers.image.version=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(last.contains(&version), "{version}");
    let Some(hadolint) = require(Tool::Hadolint) else { return };
    assert_eq!(
        succeed(Command::new(hadolint).args(["--failure-threshold", "style", "packaging/container/Dockerfile"])),
        ""
    );
}
