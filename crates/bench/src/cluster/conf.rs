//! A cluster on paper: a nodes.conf with primaries that do not exist, from which either server starts.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::Fallible;
use crate::options::Options;
use crate::process::{Server, Setting, Side};

pub const SLOTS: usize = 16384;

/// Distribution of the slots among the primaries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Single range of slots for each primary.
    Contiguous,
    /// Slots given to the primaries in turn, so that each slot is a range of its own.
    Scattered,
}

/// The server is the first of them. Each has its shard, and an address where there is nothing.
pub fn text(nodes: usize, layout: Layout) -> String {
    text_at(nodes, layout, |node| format!("127.1.{}.{}:7000@17000", node / 100, node % 100 + 1))
}

/// With the nodes at these addresses.
pub fn text_at(nodes: usize, layout: Layout, address: impl Fn(usize) -> String) -> String {
    let mut conf = String::new();
    for node in 0..nodes {
        let flags = if node == 0 { "myself,master" } else { "master" };
        let (id, shard) = (id(node), node + 0x1000);
        let address = address(node);
        put(
            &mut conf,
            format_args!("{id} {address},,tls-port=0,shard-id={shard:040x} {flags} - 0 0 {node} "),
        );
        conf.push_str("connected");
        match layout {
            Layout::Contiguous => {
                let (from, to) = (node * SLOTS / nodes, (node + 1) * SLOTS / nodes - 1);
                put(&mut conf, format_args!(" {from}-{to}"));
            }
            Layout::Scattered => {
                (node..SLOTS).step_by(nodes).for_each(|slot| put(&mut conf, format_args!(" {slot}")));
            }
        }
        conf.push('\n');
    }
    put(&mut conf, format_args!("vars currentEpoch {nodes} lastVoteEpoch 0\n"));
    conf
}

/// Returns the id of the node with this number.
pub fn id(node: usize) -> String {
    format!("{:040x}", node + 1)
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("a String takes all");
}

/// A member of a cluster that begins with this file, or with none. Nothing of it is found to have failed
/// meanwhile.
pub fn start(side: Side, conf: Option<&str>, setting: Setting, options: &Options) -> Fallible<Server> {
    let file = file(side, options);
    let failed = |why: std::io::Error| format!("cannot write {}: {why}", file.display());
    match conf {
        Some(conf) => {
            std::fs::create_dir_all(&options.scratch).map_err(failed)?;
            std::fs::write(&file, conf).map_err(failed)?;
        }
        None => drop(std::fs::remove_file(&file)),
    }
    std::fs::create_dir_all(&options.scratch).map_err(failed)?;
    let setting = setting
        .with("cluster-enabled", "yes")
        .with("cluster-config-file", path_text(&file))
        .with("cluster-node-timeout", 3_600_000)
        .with("cluster-require-full-coverage", "no");
    Server::start(side, &setting, options)
}

fn file(side: Side, options: &Options) -> PathBuf {
    options.scratch.join(format!("nodes-{}.conf", side.name()))
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}
