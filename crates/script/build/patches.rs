//! Applies patches to texts. A change fits one place of its file to the byte, or the build fails.
//!
//! ```text
//! why the patch is there
//! --- a/lapi.c
//! +++ b/lapi.c
//! @@ lua_rawset              a change begins; what follows is for the reader
//! -a line that goes
//! +a line that is new
//!  a line that stays         only as many as make the place the only one of the file
//! ```
//! This is `diff -u` without numbers of lines, so that a patch outlives a change above its places, and quotes
//! little.

use std::collections::BTreeMap;

/// Lines of the patch that are a change of `file`: its old lines become its new ones.
struct Change<'a> {
    file: &'a str,
    /// Number of the line in the patch, from 1.
    line: usize,
    old: String,
    new: String,
}

/// `name`: of the patch. The files are those that patches may change, by their names.
pub fn apply(name: &str, patch: &str, files: &mut BTreeMap<String, String>) -> Result<(), String> {
    if !patch.ends_with('\n') {
        return Err(format!("{name}: the last line has no end"));
    }
    let changes = changes_of(patch).map_err(|(line, why)| format!("{name}:{line}: {why}"))?;
    if changes.is_empty() {
        return Err(format!("{name}: nothing is changed"));
    }
    for change in changes {
        change.apply(files).map_err(|why| format!("{name}:{}: {why}", change.line))?;
    }
    Ok(())
}

fn changes_of(patch: &str) -> Result<Vec<Change<'_>>, (usize, &'static str)> {
    let mut changes: Vec<Change<'_>> = Vec::new();
    let mut file = None;
    let mut within = false;
    for (line, text) in (1..).zip(patch.split_inclusive('\n')) {
        if text.starts_with("--- a/") {
            within = false;
        } else if let Some(name) = text.strip_prefix("+++ b/") {
            file = Some(name.trim_end());
        } else if text.starts_with("@@") {
            let file = file.ok_or((line, "a change of no file"))?;
            changes.push(Change { file, line, old: String::new(), new: String::new() });
            within = true;
        } else if within {
            let change = changes.last_mut().expect("a change has begun");
            let (mark, content) = text.split_at_checked(1).unwrap_or(("", text));
            match mark {
                " " => {
                    change.old.push_str(content);
                    change.new.push_str(content);
                }
                "-" => change.old.push_str(content),
                "+" => change.new.push_str(content),
                _ => return Err((line, "a line of a change begins with a space, - or +")),
            }
        }
    }
    Ok(changes)
}

impl Change<'_> {
    fn apply(&self, files: &mut BTreeMap<String, String>) -> Result<(), String> {
        let text = files.get_mut(self.file).ok_or_else(|| format!("no source is called {}", self.file))?;
        let [at] = places(text, &self.old)[..] else {
            let count = places(text, &self.old).len();
            return Err(format!("{} has the old lines of this change {count} times, not once", self.file));
        };
        text.replace_range(at..at + self.old.len(), &self.new);
        Ok(())
    }
}

/// Returns the places of these whole lines in the text; none if there are no lines.
fn places(text: &str, lines: &str) -> Vec<usize> {
    let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
    starts.filter(|at| !lines.is_empty() && text[*at..].starts_with(lines)).collect()
}
