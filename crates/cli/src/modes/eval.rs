//! `--eval file key1 key2 , arg1 arg2`: the EVAL command of a script in a file.

use std::path::Path;

use crate::Fallible;

/// Keys stand before a comma of its own, arguments after it.
pub fn command(file: &Path, words: &[Vec<u8>]) -> Fallible<Vec<Vec<u8>>> {
    let script = std::fs::read(file)
        .map_err(|why| format!("Can't open file '{}': {}", file.display(), crate::text::reason(&why)))?;
    let comma = words.iter().position(|word| word == b",");
    let keys = comma.unwrap_or(words.len());
    let rest = words.iter().enumerate().filter(|(at, _)| Some(*at) != comma).map(|(_, word)| word.clone());
    Ok([b"EVAL".to_vec(), script, keys.to_string().into_bytes()].into_iter().chain(rest).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_comma_ends_the_keys() {
        let file = std::env::temp_dir().join(format!("isotherm-cli-eval-{}", std::process::id()));
        std::fs::write(&file, "return 1").unwrap();
        let check = |line: &str, expected: &str| {
            let words: Vec<Vec<u8>> = line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect();
            let command = command(&file, &words).unwrap();
            assert_eq!(String::from_utf8(command.join(&b'|')).unwrap(), expected);
        };
        check("", "EVAL|return 1|0");
        check("a b", "EVAL|return 1|2|a|b");
        check("a , x ,", "EVAL|return 1|1|a|x|,");
        std::fs::remove_file(&file).unwrap();
        assert!(command(&file, &[]).unwrap_err().ends_with("No such file or directory"));
    }
}
