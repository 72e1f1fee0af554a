//! The container image, without a container engine: its last stage is put together as the Dockerfile says, of the
//! program that cargo built, with the libraries that it is linked with for what the base image has; and it runs read-only,
//! as the user with a number, on a recorded host.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::host::HostTree;
use crate::common::run::{PROGRAM, Server, free_address};
use crate::common::tools::skip;
use crate::{root, succeed};

/// Instructions of the last stage, one a line, by their words.
fn last_stage() -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join("packaging/container/Dockerfile")).unwrap().replace("\\\n", " ");
    let stage = text.rsplit("\nFROM ").next().unwrap().to_owned();
    let lines = stage.lines().skip(1).filter_map(|line| line.split_once(' '));
    lines.map(|(word, rest)| (word.to_owned(), rest.trim().to_owned())).collect()
}

/// The list that an instruction in exec form has.
fn exec(stage: &[(String, String)], word: &str) -> Vec<String> {
    let (_, list) = stage.iter().find(|(name, _)| name == word).unwrap();
    serde_json::from_str(list).unwrap()
}

/// The libraries of a program, as the loader finds them.
fn libraries(program: &str) -> Vec<PathBuf> {
    let listed = succeed(Command::new("ldd").arg(program));
    let paths = listed.split_ascii_whitespace().filter(|word| word.starts_with('/'));
    paths.map(PathBuf::from).collect()
}

fn put(from: &Path, image: &Path, to: &Path) {
    let to = image.join(to.strip_prefix("/").unwrap());
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(from, to).unwrap();
}

#[test]
fn the_image_runs_read_only_as_a_user_without_a_name() {
    let namespaces = Command::new("unshare").args(["--mount", "true"]).status();
    if !rustix::process::getuid().is_root() || !namespaces.is_ok_and(|status| status.success()) {
        skip("this is not root, or no namespaces may be made here");
        return;
    }
    let (stage, place) = (last_stage(), TempDir::new_in(root().join("target")).unwrap());
    let image = place.path().join("image");
    for library in libraries(PROGRAM) {
        put(&library, &image, &library);
    }
    for (_, copy) in stage.iter().filter(|(word, _)| word == "COPY") {
        let words: Vec<&str> = copy.split_ascii_whitespace().collect();
        match words[..] {
            ["--from=build", from, to] => {
                assert_eq!(from, "/lanewatch/target/image/lanewatch", "built by the first stage");
                put(Path::new(PROGRAM), &image, Path::new(to));
            }
            [from, to] => put(&root().join(from), &image, Path::new(to)),
            _ => panic!("COPY {copy}"),
        }
    }
    let user = &stage.iter().find(|(word, _)| word == "USER").unwrap().1;
    assert!(user.split(':').all(|number| number.parse::<u32>().is_ok_and(|number| number > 0)), "{user}");
    HostTree::new(2).write(&image.join("host")).unwrap();
    succeed(Command::new("chmod").args(["-R", "a+rX"]).arg(place.path()));

    let address = free_address();
    let read_only = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && ! touch \"$1/x\" 2>/dev/null && \
                     image=$1 user=$2 && shift 2 && exec chroot --userspec=\"$user\" \"$image\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", read_only, "sh"]).arg(&image).arg(user);
    command.args(exec(&stage, "ENTRYPOINT")).args(exec(&stage, "CMD"));
    command.arg("--web.listen-address").arg(address.to_string());
    let server = Server::spawn(command, address, TempDir::new().unwrap(), "/-/ready");
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("lanewatch_device_info{device=\"mlx5_1\""), "{metrics}");
    assert!(!server.log().contains("running as root"), "{}", server.log());
    let exposed = &stage.iter().find(|(word, _)| word == "EXPOSE").unwrap().1;
    let usual = succeed(Command::new(PROGRAM).args(["serve", "--help"]));
    assert!(usual.contains(&format!("[default: :{exposed}]")), "{exposed}");
}

#[test]
fn the_image_is_built_as_releases_are() {
    let text = fs::read_to_string(root().join("packaging/container/Dockerfile")).unwrap();
    let dist = fs::read_to_string(root().join("packaging/dist.sh")).unwrap();
    let build = "build --profile dist --locked";
    assert!(text.contains(&format!("cargo {build} --target=\"$target\"")), "{text}");
    assert!(dist.contains(&format!("\"$cargo\" {build}")) && dist.contains("-unknown-linux-musl"), "{dist}");
    assert!(text.contains("target=$(uname -m)-unknown-linux-musl"), "{text}");
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let version = text.split("FROM rust:").nth(1).and_then(|rest| rest.split('-').next()).unwrap();
    assert!(manifest.contains(&format!("rust-version = \"{version}\"")), "{version}");
}

/// The files of an archive by path.
fn unpacked(archive: &[u8]) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut archive = tar::Archive::new(archive);
    let file = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.unwrap();
        let (path, mut content) = (entry.path().unwrap().to_str().unwrap().to_owned(), Vec::new());
        entry.read_to_end(&mut content).unwrap();
        assert_eq!((entry.header().uid().unwrap(), entry.header().gid().unwrap()), (0, 0), "{path}");
        (path, (entry.header().mode().unwrap(), content))
    };
    archive.entries().unwrap().map(file).collect()
}

/// As image formats write it.
fn sha256(content: &[u8]) -> String {
    let sum = ring::digest::digest(&ring::digest::SHA256, content);
    sum.as_ref().iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// What a descriptor of the archive stands for.
fn blob(files: &BTreeMap<String, (u32, Vec<u8>)>, descriptor: &Value) -> Vec<u8> {
    let digest = descriptor["digest"].as_str().unwrap();
    let content = files[&format!("blobs/{}", digest.replace(':', "/"))].1.clone();
    assert_eq!(digest, sha256(&content));
    assert_eq!(descriptor["size"], content.len());
    content
}

#[test]
fn the_archive_holds_the_image_of_the_dockerfile_for_both_architectures() {
    let place = TempDir::new().unwrap();
    let made = |name: &str| {
        let path = place.path().join(name);
        let mut command = Command::new("python3");
        command.arg("packaging/image.py").arg(&path).arg("1.2.3").env("SOURCE_DATE_EPOCH", "1764417600");
        succeed(command.args(["amd64=README.md", "arm64=SECURITY.md"]));
        fs::read(path).unwrap()
    };
    let archive = made("one.tar");
    assert!(archive == made("two.tar"), "the same twice");
    let (files, stage) = (unpacked(&archive), last_stage());
    let json = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).unwrap() };
    let named = &json(&files["index.json"].1)["manifests"][0];
    assert_eq!(named["annotations"]["org.opencontainers.image.ref.name"], "1.2.3");
    let index = json(&blob(&files, named));
    let programs = [("amd64", "README.md"), ("arm64", "SECURITY.md")];
    assert_eq!(index["manifests"].as_array().unwrap().len(), programs.len());
    for (manifest, (architecture, program)) in index["manifests"].as_array().unwrap().iter().zip(programs) {
        assert_eq!(manifest["platform"]["architecture"], architecture);
        let manifest = json(&blob(&files, manifest));
        let config = json(&blob(&files, &manifest["config"]));
        assert_eq!(config["architecture"], architecture);
        for (word, key) in [("ENTRYPOINT", "Entrypoint"), ("CMD", "Cmd")] {
            assert_eq!(config["config"][key], serde_json::json!(exec(&stage, word)));
        }
        assert_eq!(config["config"]["User"], "65534:65534");
        let mut layer = Vec::new();
        flate2::read::GzDecoder::new(&*blob(&files, &manifest["layers"][0])).read_to_end(&mut layer).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"], serde_json::json!([sha256(&layer)]));
        let layer = unpacked(&layer);
        let expected = (0o755, fs::read(root().join(program)).unwrap());
        assert!(layer["usr/bin/lanewatch"] == expected, "the program of this architecture");
        assert_eq!(layer["usr/share/doc/lanewatch/LICENSE"].0, 0o644);
    }
}
