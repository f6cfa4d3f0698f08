//! Paragraphs of a document, wrapped as by hand: tables and code stay as they are.

/// Width of a document's lines (`crates/xtask/src/tidy/wide.rs` counts those that are wider).
const COLUMNS_MAX: usize = 132;

/// Returns a Markdown text with its wide lines broken between words.
pub fn wrapped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        if line.starts_with('|') || line.chars().count() <= COLUMNS_MAX {
            out.push_str(line);
        } else {
            wrap(line, &mut out);
        }
        out.push('\n');
    }
    out
}

fn wrap(line: &str, out: &mut String) {
    let mut columns = 0;
    for word in line.split(' ') {
        let width = word.chars().count();
        if columns > 0 {
            let is_full = columns + 1 + width > COLUMNS_MAX;
            out.push(if is_full { '\n' } else { ' ' });
            columns = if is_full { 0 } else { columns + 1 };
        }
        out.push_str(word);
        columns += width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_broken_between_words_and_rows_are_not() {
        let (word, row) = ("w".repeat(65), format!("| {} |", "r".repeat(140)));
        let text = format!("# {word}\n\n{word} {word} {word}x\n{row}\n");
        assert_eq!(wrapped(&text), format!("# {word}\n\n{word} {word}\n{word}x\n{row}\n"));
        assert_eq!(wrapped(&wrapped(&text)), wrapped(&text));
    }
}
