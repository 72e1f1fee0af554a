//! The container image, without a container engine: its last stage is put together as the Dockerfile says, of the
//! program that cargo built, with the libraries that it is linked with for what the base image has; and it runs read-only,
//! as the user with a number, on a recorded host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
                assert_eq!(from, "/lanewatch/target/dist/lanewatch", "built by the first stage");
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
    let command = text.lines().find_map(|line| line.strip_prefix("RUN cargo ")).unwrap();
    assert!(dist.contains(&format!("\"$cargo\" {command}")), "{command}");
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let version = text.split("FROM rust:").nth(1).and_then(|rest| rest.split('-').next()).unwrap();
    assert!(manifest.contains(&format!("rust-version = \"{version}\"")), "{version}");
}
