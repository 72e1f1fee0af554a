//! The import graph of the sources: which file imports from which, by `use` lines and by paths in code. A name that a
//! module only hands on (`pub use`) counts as imported from the file that defines it. Tests and their hosts are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Names of modules or of what is in them, from the crate's root or from the module that mentions them.
type Names = Vec<String>;

/// A mention of something in another module.
struct Mention {
    /// The module that mentions it; an inline module has its own name.
    module: Names,
    path: Names,
    /// The name that it goes by from then on; a path in code gives none.
    binding: Option<String>,
}

/// Files, and the files that each imports from.
#[derive(Default)]
pub(crate) struct ImportGraph {
    modules: BTreeMap<Names, PathBuf>,
    bindings: BTreeMap<(Names, String), Names>,
    edges: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
}

impl ImportGraph {
    /// The graph of these files below `src`, with their texts.
    pub(crate) fn new(files: &[(PathBuf, String)]) -> Self {
        let mut graph = Self::default();
        let mut mentions = Vec::new();
        for (path, text) in files.iter().filter(|(path, _)| path != Path::new("src/main.rs") && !is_of_tests(path)) {
            let module = module_of(path);
            mentions.extend(read(&module, text).into_iter().map(|mention| (path.clone(), mention)));
            graph.modules.insert(module, path.clone());
        }
        for (_, mention) in &mentions {
            if let Some(name) = &mention.binding {
                graph.bindings.insert((mention.module.clone(), name.clone()), mention.path.clone());
            }
        }
        for (file, mention) in mentions {
            let target = graph.file_of(&mention.module, &mention.path, 8);
            if let Some(target) = target.filter(|target| *target != file) {
                graph.edges.entry(file).or_default().insert(target);
            }
        }
        graph
    }

    /// The file that defines what a module calls by a path; `None` if it is not in this crate.
    fn file_of(&self, module: &[String], path: &[String], depth: u8) -> Option<PathBuf> {
        let mut at = module.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => {
                at.pop();
            }
            name => {
                let child: Names = at.iter().cloned().chain([name.to_owned()]).collect();
                let known = self.modules.contains_key(&child) || self.bindings.contains_key(&(at.clone(), name.into()));
                if !known {
                    return None;
                }
                rest = path;
            }
        }
        if matches!(path[0].as_str(), "crate" | "self" | "super") {
            rest = &path[1..];
        }
        while let Some((name, after)) = rest.split_first() {
            if name == "super" {
                at.pop();
            } else {
                at.push(name.clone());
                if !self.modules.contains_key(&at) {
                    at.pop();
                    break;
                }
            }
            rest = after;
        }
        if let Some((name, after)) = rest.split_first()
            && depth > 0
            && let Some(bound) = self.bindings.get(&(at.clone(), name.clone()))
        {
            let whole: Names = bound.iter().chain(after).cloned().collect();
            if let Some(file) = self.file_of(&at, &whole, depth - 1) {
                return Some(file);
            }
        }
        // What is inside an inline module is in the file of the module around it.
        (0..=at.len()).rev().find_map(|length| self.modules.get(&at[..length])).cloned()
    }

    /// Groups of files that import each other in a circle.
    pub(crate) fn circles(&self) -> BTreeSet<BTreeSet<PathBuf>> {
        let reached: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> =
            self.edges.keys().map(|file| (file, self.reached_from(file))).collect();
        let both = |a: &PathBuf, b: &PathBuf| reached[a].contains(b) && reached.get(b).is_some_and(|b| b.contains(a));
        let circle =
            |file: &PathBuf| reached[file].iter().filter(|other| both(file, other)).map(|p| (*p).clone()).collect();
        reached.keys().map(|file| circle(file)).filter(|circle: &BTreeSet<PathBuf>| !circle.is_empty()).collect()
    }

    fn reached_from(&self, file: &PathBuf) -> BTreeSet<&PathBuf> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&PathBuf> = self.edges.get(file).into_iter().flatten().collect();
        while let Some(next) = open.pop() {
            if reached.insert(next) {
                open.extend(self.edges.get(next).into_iter().flatten());
            }
        }
        reached
    }
}

fn is_of_tests(path: &Path) -> bool {
    let mut names = path.components().filter_map(|name| name.as_os_str().to_str());
    names.any(|name| matches!(name.trim_end_matches(".rs"), "testing" | "tests"))
}

/// The module that a file is: `src/a/b.rs` and `src/a/b/mod.rs` are `a::b`.
fn module_of(path: &Path) -> Names {
    let path = path.with_extension("");
    let names = path.components().skip(1).map(|name| name.as_os_str().to_str().unwrap().to_owned());
    names.filter(|name| name != "mod" && name != "lib").collect()
}

/// Everything that a file mentions. Relies on the layout that rustfmt gives: a module ends where its indentation does.
fn read(module: &[String], text: &str) -> Vec<Mention> {
    let mut mentions = Vec::new();
    let mut inline: Vec<(usize, String)> = Vec::new();
    let mut lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    while let Some(line) = lines.next() {
        let (indent, code) = (line.len() - line.trim_start().len(), line.trim());
        if code == "}" && inline.last().is_some_and(|(of, _)| *of == indent) {
            inline.pop();
        }
        if inline.iter().any(|(_, name)| name == "tests") {
            continue;
        }
        let module: Names = module.iter().cloned().chain(inline.iter().map(|(_, name)| name.clone())).collect();
        let (visibility, rest) = match code.split_once("use ") {
            Some((visibility, rest)) => (visibility.trim(), rest),
            None => ("none", ""),
        };
        if visibility.is_empty() || visibility == "pub" || visibility.starts_with("pub(") && visibility.ends_with(')') {
            let mut tree = rest.to_owned();
            while !tree.contains(';') {
                tree.push_str(lines.next().unwrap_or(";").trim());
            }
            expand(&module, &[], tree.trim_end_matches(';'), &mut mentions);
        } else if let Some(name) =
            code.strip_suffix(" {").and_then(|code| code.rsplit_once("mod ")).map(|(_, name)| name)
        {
            inline.push((indent, name.to_owned()));
        } else {
            mentions.extend(paths(code).map(|path| Mention { module: module.clone(), path, binding: None }));
        }
    }
    mentions
}

/// The paths of a `use` tree: `a::{b, c::{d as e, *}}`.
fn expand(module: &[String], before: &[String], tree: &str, mentions: &mut Vec<Mention>) {
    let names = |text: &str| -> Names {
        let names = text.split("::").map(str::trim).filter(|name| !name.is_empty());
        before.iter().cloned().chain(names.map(str::to_owned)).collect()
    };
    if let Some((head, inner)) = tree.split_once('{') {
        let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
        let (mut depth, mut part) = (0, String::new());
        for char in inner.chars().chain([',']) {
            depth += i32::from(char == '{') - i32::from(char == '}');
            if char == ',' && depth == 0 {
                expand(module, &names(head), &std::mem::take(&mut part), mentions);
            } else {
                part.push(char);
            }
        }
    } else if !tree.trim().is_empty() {
        let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
        let mut path = names(path);
        if path.len() > 1 && path.last().is_some_and(|name| name == "self" || name == "*") {
            path.pop();
        }
        let own = path.last().cloned();
        let binding = Some(alias.trim().to_owned()).filter(|alias| !alias.is_empty()).or(own);
        mentions.push(Mention { module: module.to_vec(), path, binding });
    }
}

/// Paths in code that begin with `crate::` or `super::`.
fn paths(code: &str) -> impl Iterator<Item = Names> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.split(move |c: char| !is_name(c) && c != ':')
        .filter(|word| word.starts_with("crate::") || word.starts_with("super::"))
        .map(|word| word.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect())
}
