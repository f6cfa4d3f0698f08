//! Folders with the files of a server: made, copied, read ahead, removed with the value.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Fallible;
use crate::options::Options;

pub struct Folder(PathBuf);

impl Folder {
    pub fn new(options: &Options, name: &str) -> Fallible<Folder> {
        let path = options.scratch.join(format!("data-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).map_err(|why| format!("cannot make {}: {why}", path.display()))?;
        Ok(Folder(path))
    }

    /// A new folder with the same files.
    pub fn copy(&self, options: &Options, name: &str) -> Fallible<Folder> {
        let copy = Folder::new(options, name)?;
        each_file(&self.0, &mut |file| {
            let to = copy.0.join(file.strip_prefix(&self.0).expect("it is inside"));
            fs::create_dir_all(to.parent().expect("it is in a folder"))?;
            fs::copy(file, &to).map(drop)
        })
        .map_err(|why| format!("cannot copy {}: {why}", self.0.display()))?;
        Ok(copy)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of the folder as text for `--dir`.
    pub fn text(&self) -> String {
        self.0.display().to_string()
    }

    /// Reads every file, so that the next reader finds it in memory.
    pub fn warm(&self) -> Fallible {
        let read = |file: &Path| std::io::copy(&mut fs::File::open(file)?, &mut std::io::sink()).map(drop);
        each_file(&self.0, &mut |file| read(file)).map_err(|why| format!("cannot read: {why}"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn each_file(folder: &Path, visit: &mut dyn FnMut(&Path) -> std::io::Result<()>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            each_file(&path, visit)?;
        } else {
            visit(&path)?;
        }
    }
    Ok(())
}
