//! Treatment of Lua's sources by the build script: a patch that is in doubt, or a file that has changed, ends
//! the build.

use std::collections::BTreeMap;
use std::fs;

#[path = "../../build/patches.rs"]
mod patches;
// The build alone looks for the crate.
#[allow(dead_code)]
#[path = "../../build/sources.rs"]
mod sources;

const TEXT: &str = "int a;\nint b;\nint a;\nint c;\n";

fn patched(changes: &str) -> Result<String, String> {
    let mut files = BTreeMap::from([("x.c".to_string(), TEXT.to_string())]);
    patches::apply("p", &format!("Why.\n\n--- a/x.c\n+++ b/x.c\n{changes}"), &mut files)?;
    Ok(files.remove("x.c").expect("the file is there"))
}

#[test]
fn a_patch_fits_one_place() {
    let cases = [
        ("@@ main\n-int b;\n+int d;\n", Ok("int a;\nint d;\nint a;\nint c;\n")),
        ("@@\n+int d;\n int b;\n@@\n-int c;\n", Ok("int a;\nint d;\nint b;\nint a;\n")),
        ("@@\n int b;\n-int a;\n", Ok("int a;\nint b;\nint c;\n")),
        ("@@\n-int a;\n", Err("p:5: x.c has the old lines of this change 2 times, not once")),
        ("@@\n-int b;\n@@\n-int b;\n", Err("p:7: x.c has the old lines of this change 0 times, not once")),
        ("@@\n-nt b;\n", Err("p:5: x.c has the old lines of this change 0 times, not once")),
        ("@@\n-int b;", Err("p: the last line has no end")),
        ("@@\n+int d;\n", Err("p:5: x.c has the old lines of this change 0 times, not once")),
        ("@@\n-int b;\n\n", Err("p:7: a line of a change begins with a space, - or +")),
        ("--- a/y.c\n+++ b/y.c\n@@\n-int b;\n", Err("p:7: no source is called y.c")),
        ("", Err("p: nothing is changed")),
    ];
    for (changes, expected) in cases {
        assert_eq!(patched(changes).as_deref(), expected.map_err(str::to_string).as_deref(), "{changes}");
    }
}

#[test]
fn a_changed_file_is_named() {
    let folder = std::env::temp_dir().join(format!("isotherm-sources-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let list = folder.join("list");
    // As `printf abc | sha1sum` has it.
    fs::write(&list, "a9993e364706816aba3e25717850c26c9cd0d89d  lapi.c\n").expect("a list");
    let missing = sources::read(&list, &folder);
    fs::write(folder.join("lapi.c"), "abc").expect("a file");
    let same = sources::read(&list, &folder);
    fs::write(folder.join("lapi.c"), "abd").expect("a file");
    let changed = sources::read(&list, &folder);
    fs::remove_dir_all(&folder).expect("the folder is there");
    assert!(missing.is_err_and(|why| why.contains("lapi.c: ")));
    assert_eq!(same, Ok(BTreeMap::from([("lapi.c".to_string(), "abc".to_string())])));
    assert!(changed.is_err_and(|why| why.contains("lapi.c is not the file of lua-src")));
}
