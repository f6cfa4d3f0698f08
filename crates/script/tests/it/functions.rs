//! Libraries of functions: what they register, what they find, and what is left of those that fail.

use isotherm_resp::{ArgsBuf, Reply};
use isotherm_script::{Ended, FunctionInterpreter, Limits, Progress, Registered};

use crate::model::{IDENTITY, Model};

fn interpreter() -> FunctionInterpreter {
    let limits = Limits { memory_bytes: 0, insecure_api: false };
    FunctionInterpreter::new(&limits, &IDENTITY).expect("there is memory")
}

fn load(interpreter: &mut FunctionInterpreter, code: &str) -> Result<Vec<Registered>, String> {
    interpreter
        .load(code.as_bytes(), &mut Model { loads: true, ..Model::default() })
        .map_err(|error| error.to_string())
}

fn run(interpreter: &mut FunctionInterpreter, function: &Registered, words: &[&str]) -> (Ended, String) {
    let words: ArgsBuf = words.iter().map(|word| word.as_bytes()).collect();
    let mut reply = Reply::default();
    let mut model = Model::default();
    let mut progress = interpreter.run(function.reference, words.args(), 1, &mut model, &mut reply);
    let ended = loop {
        match progress {
            Progress::Ended(ended) => break ended,
            Progress::Suspended => progress = interpreter.resume(&mut model, &mut reply),
        }
    };
    (ended, String::from_utf8(reply.out.clone()).expect("text"))
}

#[test]
fn a_library_registers_and_its_functions_run() {
    let mut interpreter = interpreter();
    let code = "local n = 0\n\
        server.register_function('count', function(keys, args) n = n + 1 return {n, keys[1], args[1]} end)\n\
        redis.register_function{function_name='other', description='d', flags={'no-writes', 'allow-stale'}, callback=function() return n end}";
    let functions = load(&mut interpreter, code).expect("it loads");
    let shown: Vec<_> = functions
        .iter()
        .map(|function| (function.name.as_slice(), function.description.as_deref(), function.flags))
        .collect();
    assert_eq!(shown, [(&b"count"[..], None, 0), (&b"other"[..], Some(&b"d"[..]), 0b101)]);
    let (ended, reply) = run(&mut interpreter, &functions[0], &["k", "a"]);
    assert_eq!((ended, reply.as_str()), (Ended::Returned, "*3\r\n:1\r\n$1\r\nk\r\n$1\r\na\r\n"));
    run(&mut interpreter, &functions[0], &["k"]);
    assert_eq!(run(&mut interpreter, &functions[1], &["k"]).1, ":2\r\n");
}

#[test]
fn two_libraries_share_nothing() {
    let mut interpreter = interpreter();
    let first = load(&mut interpreter, "server.register_function('f', function() shared = 1 end)").unwrap();
    let (ended, reply) = run(&mut interpreter, &first[0], &["k"]);
    assert!(matches!(ended, Ended::Failed { .. }) && reply.contains("readonly table"), "{reply}");
    for code in ["shared = 1", "server.x = 1", "redis.log = nil", "('').rep.x = 1", "server.call('get')"] {
        assert!(load(&mut interpreter, code).is_err(), "{code}");
    }
    // Names that are there while a library loads are not there when its functions run, and the other way
    // round.
    let code = "local loading = server\n\
        server.register_function('f', function() return {type(loading.register_function), type(server.call), type(server.register_function)} end)\n\
        server.register_function('g', function() loading.register_function('h', function() end) end)";
    let functions = load(&mut interpreter, code).unwrap();
    assert_eq!(
        run(&mut interpreter, &functions[0], &["k"]).1,
        "*3\r\n$8\r\nfunction\r\n$8\r\nfunction\r\n$3\r\nnil\r\n"
    );
    let (_, reply) = run(&mut interpreter, &functions[1], &["k"]);
    assert!(
        reply.contains("server.register_function can only be called on FUNCTION LOAD command"),
        "{reply}"
    );
}

/// Nor does one that is forgotten.
#[test]
fn a_library_that_fails_leaves_nothing() {
    let mut interpreter = interpreter();
    let ends = ["nosuch()", "x y", "server.register_function(1)", "local function r() r() end r()"];
    let round = |interpreter: &mut FunctionInterpreter| {
        for end in ends {
            let code = format!(
                "for i = 1, 100 do server.register_function('f' .. i, function() return i end) end\n{end}"
            );
            assert!(load(interpreter, &code).is_err(), "{end}");
        }
        let code = "for i = 1, 100 do server.register_function('f' .. i, function() return i end) end";
        let functions = load(interpreter, code).unwrap();
        functions.iter().for_each(|function| interpreter.forget(function.reference));
        interpreter.collect();
        interpreter.used_bytes()
    };
    let first = (0..3).map(|_| round(&mut interpreter)).max().unwrap();
    let last = (0..200).map(|_| round(&mut interpreter)).max().unwrap();
    // 80,000 functions would be megabytes.
    assert!(last <= first + 16 * 1024, "{first} bytes, then {last}");
}

#[test]
fn a_library_that_does_not_end_is_stopped() {
    let mut interpreter = interpreter();
    for code in [
        "while true do end",
        "local function f() return f() end f()",
        "('x'):gsub('x', function() while true do end end)",
    ] {
        let mut host = Model { stop_at: 3, loads: true, ..Model::default() };
        let error = interpreter.load(code.as_bytes(), &mut host).expect_err(code);
        assert_eq!(error.to_string(), "Error registering functions: ERR FUNCTION LOAD timeout", "{code}");
    }
    let functions =
        load(&mut interpreter, "server.register_function('f', function() while true do end end)").unwrap();
    let words: ArgsBuf = [&b"k"[..]].into_iter().collect();
    let mut reply = Reply::default();
    let mut host = Model { stop_at: 3, loads: true, ..Model::default() };
    let ended = interpreter.run(functions[0].reference, words.args(), 1, &mut host, &mut reply);
    assert_eq!(ended, Progress::Ended(Ended::Stopped));
    assert!(String::from_utf8_lossy(&reply.out).contains("Script killed by user with FUNCTION KILL."));
}

#[test]
fn memory_that_ends_is_an_error() {
    let limits = Limits { memory_bytes: 2 << 20, insecure_api: false };
    let mut interpreter = FunctionInterpreter::new(&limits, &IDENTITY).expect("there is memory");
    for code in [
        "local t = {} for i = 1, 1e7 do t[i] = i end",
        "for i = 1, 1e7 do server.register_function('f' .. i, function() end) end",
        "server.register_function{function_name=('x'):rep(1e7), callback=function() end}",
    ] {
        let error = load(&mut interpreter, code).expect_err(code);
        assert!(error.contains("not enough memory"), "{code}: {error}");
        assert_eq!(
            load(&mut interpreter, "server.register_function('f', function() end)").map(|all| all.len()),
            Ok(1)
        );
    }
}
