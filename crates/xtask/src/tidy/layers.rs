//! Inside a crate too, imports only go down: the folders of `keyspace` are its layers, in the order of its
//! `lib.rs`.

use super::{File, Finding, code_lines};

/// A crate's sources and its folders, the lowest first. A file may name its own layer and those before it.
const LAYERS: [(&str, &[&str]); 1] =
    [("crates/keyspace/src/", &["layout", "accounting", "values", "tables", "access", "upkeep", "reports"])];

pub fn check(files: &[File]) -> Vec<Finding> {
    files.iter().flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (sources, layers) in LAYERS {
        let Some((folder, _)) = file.path.strip_prefix(sources).and_then(|path| path.split_once('/')) else {
            continue;
        };
        let Some(own) = layers.iter().position(|layer| *layer == folder) else {
            findings.push(super::whole(&file.path, format!("{folder} is no layer that tidy knows")));
            continue;
        };
        for (line, code) in code_lines(&file.text) {
            let named = |layer: &&&str| code.contains(&format!("crate::{layer}::"));
            findings.extend(layers[own + 1..].iter().filter(named).map(|layer| Finding {
                path: file.path.clone(),
                line,
                what: format!("{folder} must not name {layer}, which lies above it"),
            }));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let path = format!("crates/keyspace/src/{path}");
        let files = [File { path, text: text.to_string() }];
        check(&files).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn an_import_of_a_higher_layer_is_found() {
        let text = "use crate::layout::kind::Db;\nuse crate::values::store::Store;\n";
        assert_eq!(found("tables/table/mod.rs", text), [""; 0]);
        assert_eq!(found("layout/entry.rs", text), ["layout must not name values, which lies above it"]);
        assert_eq!(found("layout/entry.rs", "// crate::values::store\n"), [""; 0]);
        assert_eq!(found("lib.rs", text), [""; 0]);
        assert_eq!(found("helpers/a.rs", text), ["helpers is no layer that tidy knows"]);
    }
}
