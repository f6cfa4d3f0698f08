//! Runs one script many times in an interpreter and prints the CPU time: `library_cost TIMES SCRIPT [ARG]`.
//! The cost of a call of a library, for a comparison with the same script in `valkey-cli EVAL`.

use isotherm_resp::{Args, ArgsBuf, Protocol, Reply};
use isotherm_script::{Called, Checkpoint, Host, Identity, Interpreter, Limits, LogLevel, Replication};

struct NoHost;

impl Host for NoHost {
    fn call(&mut self, _: Args<'_>, reply: &mut Reply) -> Called {
        reply.null();
        Called::Done
    }
    fn set_replication(&mut self, _: Replication) {}
    fn log(&mut self, _: LogLevel, _: &[u8]) {}
    fn may_run(&mut self, _: Args<'_>) -> Option<bool> {
        None
    }
    fn checkpoint(&mut self) -> Checkpoint {
        Checkpoint::GoOn
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [times, script, rest @ ..] = words.as_slice() else { panic!("library_cost TIMES SCRIPT [ARG]") };
    let identity = Identity { server_name: "valkey", redis_version: "7.2.4", valkey_version: "9.1.2" };
    let mut lua = Interpreter::new(&Limits { memory_bytes: 0, insecure_api: false }, &identity)
        .expect("there is memory");
    let sha = [b'0'; 40];
    lua.compile(&sha, script.as_bytes()).expect("a script");
    let words: ArgsBuf = rest.iter().map(String::as_bytes).collect();
    for _ in 0..times.parse().expect("a number") {
        let mut reply = Reply::new(Protocol::Resp2);
        lua.run(&sha, words.args(), 0, &mut NoHost, &mut reply);
        print!("{}", String::from_utf8_lossy(&reply.out));
    }
}
