//! RDB files in encodings that no server writes any more: read, or refused with the reason. They are made
//! anew for each test, and Valkey reads the same files where `ISOTHERM_PEER_BIN` says where its programs are
//! (a reported skip without).

mod files;
mod packed;
mod rdb;

use crate::common::{self, Client, Server};
use crate::peers;
use crate::persistence::Folder;
use std::path::Path;
use std::process::Command;

/// Starts `program` on `file`.
fn start(program: &Path, folder: &Folder, file: &[u8], more: &[&str]) -> Server {
    std::fs::write(folder.file(), file).unwrap();
    peers::start_with(program.to_path_buf(), &folder.0, more)
}

fn check_all(client: &mut Client, checks: &files::Checks) {
    checks.iter().for_each(|(request, reply)| client.check(request, reply));
}

/// Checks that `program` loads each file of old, and that the digest of the data is the one of Valkey 9.1.2.
fn loads(program: &Path, folder: &Folder) {
    let (every, of_every) = files::every_encoding(rdb::File::new("REDIS0004"));
    let (quicklist, of_quicklist) = files::quicklist();
    let (zset, of_zset) = files::ziplist_zset();
    let of_hash = || [vec![("SELECT 9".into(), "+OK\r\n".into())], files::hash_checks()].concat();
    for (name, file, checks, digest) in [
        ("every encoding", every.end(), of_every, "8907e15404983bf65866b5219221c327b0f08d2a"),
        ("ziplist hash", files::ziplist_hash(), of_hash(), "06d866749bfb79ebe4fc5df18c1a01704be66edc"),
        ("zipmap hash", files::zipmap_hash(), of_hash(), "06d866749bfb79ebe4fc5df18c1a01704be66edc"),
        ("quicklist", quicklist, of_quicklist, "cf84702349eaa25aadbad6f08a58a24b016f91c8"),
        ("ziplist zset", zset, of_zset, "dd55d1c544086d84a07f335a1bb2f2411efd9476"),
    ] {
        println!("{name}");
        let server = start(program, folder, &file, &[]);
        let mut client = server.client();
        check_all(&mut client, &checks);
        client.check("DEBUG DIGEST", &format!("+{digest}\r\n"));
    }
}

/// Checks that `program` skips collections without elements, and counts them.
fn skips_what_is_empty(program: &Path, folder: &Folder) {
    let server = start(program, folder, &files::empty_collections(), &[]);
    let mut client = server.client();
    client.check("DBSIZE", ":0\r\n");
    client.check("DEBUG DIGEST", &format!("+{}\r\n", "0".repeat(40)));
    server.wait_for_log(&format!(" empty keys skipped: {},", files::EMPTY_KEYS));
}

/// Checks that `program` does not start on what is damaged, nor on a version to come unless it is asked to
/// try.
fn refuses(program: &Path, folder: &Folder) {
    for (file, text) in [
        (files::broken_ziplist(), "Hash ziplist integrity check failed."),
        (files::version_to_come(), "Can't handle RDB format version 987"),
    ] {
        std::fs::write(folder.file(), file).unwrap();
        let port = common::free_port();
        let mut command = Command::new(program);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--rdb-version-check", "strict"]);
        command.arg("--dir").arg(&folder.0);
        let mut server = Server::spawn(port, command);
        assert_eq!(server.wait().code(), Some(1), "{}", server.log());
        assert!(server.log().contains(text), "{}", server.log());
    }
    let server = start(program, folder, &files::version_to_come(), &["--rdb-version-check", "relaxed"]);
    check_all(&mut server.client(), &files::every_encoding(rdb::File::new("VALKEY987")).1);
}

#[test]
fn files_of_old_servers() {
    let folder = Folder::new("old");
    loads(common::binary(), &folder);
    skips_what_is_empty(common::binary(), &folder);
    refuses(common::binary(), &folder);
}

#[test]
fn valkey_reads_the_same_of_them() {
    let Some(valkey) = peers::peer("valkey-server") else { return };
    let folder = Folder::new("old-valkey");
    loads(&valkey, &folder);
    skips_what_is_empty(&valkey, &folder);
    refuses(&valkey, &folder);
}
