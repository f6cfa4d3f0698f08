//! Files of the tree that a test writes from declarations.

/// Writes the file again if it is not `text`, and fails then: the change is to be looked at and committed.
/// `name` is a path from the root of the tree.
#[track_caller]
pub fn check_fresh(name: &str, text: &str) {
    let path = format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR"));
    if std::fs::read_to_string(&path).is_ok_and(|before| before == text) {
        return;
    }
    std::fs::write(&path, text).expect("the file can be written");
    panic!("{name} was stale and has been written again");
}
