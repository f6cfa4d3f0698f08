//! Figures of cases that are done, kept in a folder: a long table is made in several runs, or is continued
//! after one was stopped.
//!
//! ```text
//!   jemalloc-slot-index-skip-list-15000000-89ab01234567cdef.figures      program, case, and a checksum of both
//! ```
//!
//! The checksum is of the program's bytes too: figures of a program that was built differently since are not
//! taken for its own.

use std::fs;
use std::path::{Path, PathBuf};

use isotherm_probe::Fallible;
use isotherm_stdx::crc64::crc64;

use crate::figures::Figures;
use crate::output::write_whole;

pub struct Kept {
    folder: Option<PathBuf>,
}

impl Kept {
    pub fn in_folder(folder: Option<&Path>) -> Fallible<Kept> {
        if let Some(folder) = folder {
            fs::create_dir_all(folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
        }
        Ok(Kept { folder: folder.map(Path::to_path_buf) })
    }

    /// The figures of a case of `program`, measured only if they are not here. `words` are all that they
    /// depend on.
    pub fn figures(
        &self,
        program: &Path,
        words: &str,
        measure: impl FnOnce() -> Fallible<Figures>,
    ) -> Fallible<Figures> {
        let Some(folder) = &self.folder else { return measure() };
        let bytes = fs::read(program).map_err(|why| format!("cannot read {}: {why}", program.display()))?;
        let file = folder.join(file_name(words, &bytes));
        if let Ok(text) = fs::read_to_string(&file) {
            return Figures::parse(&text);
        }
        let figures = measure()?;
        write_whole(&file, &figures.to_string())?;
        Ok(figures)
    }
}

fn file_name(words: &str, program: &[u8]) -> String {
    /// Names may have 255 B; the checksum distinguishes what is cut off.
    const WORDS_MAX: usize = 120;
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = words.chars().map(plain).take(WORDS_MAX).collect();
    format!("{name}-{:016x}.figures", crc64(crc64(0, program), words.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_not_measured_again() {
        let folder = std::env::temp_dir().join(format!("isotherm-memlab-kept-{}", std::process::id()));
        let kept = Kept::in_folder(Some(&folder)).unwrap();
        let program = folder.join("program");
        fs::write(&program, "one").unwrap();
        let measure = |value: f64| {
            move || {
                let mut figures = Figures::default();
                figures.add("bytes", value);
                Ok(figures)
            }
        };
        let bytes = |words: &str, value: f64| -> f64 {
            kept.figures(&program, words, measure(value)).unwrap().get("bytes").unwrap()
        };
        assert_eq!(bytes("a 1", 5.0), 5.0);
        assert_eq!(bytes("a 1", 6.0), 5.0);
        // The file name stays the same but for the checksum.
        assert_eq!(bytes("a-1", 7.0), 7.0);
        fs::write(&program, "two").unwrap();
        assert_eq!(kept.figures(&program, "a 1", measure(8.0)).unwrap().get("bytes"), Ok(8.0));
        assert!(kept.figures(&program, "b", || Err("killed".into())).is_err());
        assert_eq!(kept.figures(&program, "b", measure(9.0)).unwrap().get("bytes"), Ok(9.0));
        fs::remove_dir_all(&folder).unwrap();
    }
}
