//! The texts of errors, and which side has counted them.

use isotherm_resp::Protocol;
use isotherm_script::Ended;

use crate::model::{Model, eval, eval_in, eval_with, interpreter};

#[test]
fn texts() {
    let cases = [
        (
            "return 1 +",
            "-ERR Error compiling script (new function): user_script:1: unexpected symbol near '<eof>'\r\n",
        ),
        ("error('x')", "-ERR user_script:1: x script: on @user_script:1.\r\n"),
        ("\n\nerror('x')", "-ERR user_script:3: x script: on @user_script:3.\r\n"),
        ("error({err='My Err'})", "-My Err script: on @user_script:1.\r\n"),
        ("error({})", "-ERR unknown error script: on @user_script:1.\r\n"),
        ("error()", "-ERR nil script: on @user_script:1.\r\n"),
        ("error({err='a\\r\\nb\\r\\n'})", "-a  b   script: on @user_script:1.\r\n"),
        (
            "return redis.call('nosuch')",
            "-ERR Unknown command called from script script: on @user_script:1.\r\n",
        ),
        (
            "return redis.call('set', 'a')",
            "-ERR Wrong number of args calling command from script script: on @user_script:1.\r\n",
        ),
        (
            "local function f()\n return redis.call('nosuch') end\n\nreturn (f())",
            "-ERR Unknown command called from script script: on @user_script:2.\r\n",
        ),
        ("return redis.pcall('nosuch')", "-ERR Unknown command called from script\r\n"),
        ("return {redis.pcall('nosuch')}", "*1\r\n-ERR Unknown command called from script\r\n"),
        ("return redis.pcall('nosuch').err", "$38\r\nERR Unknown command called from script\r\n"),
        (
            "return {pcall(redis.call, 'nosuch')}",
            "*2\r\n$-1\r\n$38\r\nERR Unknown command called from script\r\n",
        ),
        (
            "return select(2, pcall(redis.call, 'nosuch'))",
            "$38\r\nERR Unknown command called from script\r\n",
        ),
        ("return select(2, pcall(error, {err='E'}))", "$1\r\nE\r\n"),
        ("return select('#', pcall(error, {}))", ":3\r\n"),
        ("return select(2, pcall(error, 'x'))", "$1\r\nx\r\n"),
        (
            "return select(2, xpcall(function() redis.call('nosuch') end, function(e) return e.err end))",
            "$38\r\nERR Unknown command called from script\r\n",
        ),
        ("return redis.error_reply('My Err')", "-My Err\r\n"),
        ("return redis.error_reply('-My Err\\r\\n')", "-My Err\r\n"),
        ("return redis.error_reply('Word')", "-ERR Word\r\n"),
        ("return redis.error_reply()", "-ERR wrong number or type of arguments\r\n"),
        ("return redis.status_reply('Fine')", "+Fine\r\n"),
        ("return redis.status_reply(1)", "-ERR wrong number or type of arguments\r\n"),
        ("return redis.sha1hex('')", "$40\r\nda39a3ee5e6b4b0d3255bfef95601890afd80709\r\n"),
        ("return redis.sha1hex()", "-ERR wrong number of arguments script: on @user_script:1.\r\n"),
        ("redis.setresp(4)", "-ERR RESP version must be 2 or 3. script: on @user_script:1.\r\n"),
        ("redis.setresp()", "-ERR server.setresp() requires one argument. script: on @user_script:1.\r\n"),
        (
            "redis.set_repl(4)",
            "-ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE. script: on @user_script:1.\r\n",
        ),
        ("redis.set_repl()", "-ERR server.set_repl() requires one argument. script: on @user_script:1.\r\n"),
        ("redis.log(1)", "-ERR server.log() requires two arguments or more. script: on @user_script:1.\r\n"),
        (
            "redis.log('x', 'y')",
            "-ERR First argument must be a number (log level). script: on @user_script:1.\r\n",
        ),
        ("redis.log(10, 'y')", "-ERR Invalid log level. script: on @user_script:1.\r\n"),
        ("return redis.acl_check_cmd('get', 'x')", ":1\r\n"),
        ("return redis.acl_check_cmd('set', 'x')", "$-1\r\n"),
        (
            "return redis.acl_check_cmd('nosuch')",
            "-ERR Invalid command passed to server.acl_check_cmd() script: on @user_script:1.\r\n",
        ),
        ("return redis.breakpoint()", "$-1\r\n"),
        ("return redis.debug('x')", "$-1\r\n"),
        ("return redis.replicate_commands()", ":1\r\n"),
        (
            "local t = setmetatable({}, {__tostring = function() return 'shown' end}) error(t)",
            "-ERR unknown error script: on @user_script:1.\r\n",
        ),
        (
            "return string.rep('x')",
            "-ERR user_script:1: bad argument #2 to 'rep' (number expected, got no value) script: on @user_script:1.\r\n",
        ),
        (
            "return nil + 1",
            "-ERR user_script:1: attempt to perform arithmetic on a nil value script: on @user_script:1.\r\n",
        ),
    ];
    for (script, reply) in cases {
        assert_eq!(eval(script), reply, "{script}");
    }
}

#[test]
fn an_error_of_a_command_is_counted_already() {
    let mut lua = interpreter();
    let mut ended = |script| eval_with(&mut lua, &mut Model::default(), Protocol::Resp2, script, &[], &[]).1;
    assert_eq!(ended("return redis.call('nosuch')"), Some(Ended::Failed { is_counted: true }));
    assert_eq!(ended("error('x')"), Some(Ended::Failed { is_counted: false }));
    // The script returns the result of pcall: the reply is an error as well.
    assert_eq!(ended("return redis.pcall('nosuch')"), Some(Ended::Failed { is_counted: true }));
}

#[test]
fn what_reaches_the_host() {
    let mut lua = interpreter();
    let mut model = Model::default();
    let script = "redis.log(redis.LOG_WARNING, 'a', 2, 'c') redis.set_repl(redis.REPL_AOF) return redis.call('SET', 'k', 1)";
    let reply = eval_with(&mut lua, &mut model, Protocol::Resp2, script, &[], &[]).0;
    assert_eq!(reply, "+OK\r\n");
    assert_eq!(model.logged, [(isotherm_script::LogLevel::Warning, b"a 2 c".to_vec())]);
    assert_eq!(model.replication, Some(isotherm_script::Replication { aof: true, replicas: false }));
    assert_eq!(model.calls, [b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n1\r\n".to_vec()]);
}

#[test]
fn a_handler_that_fails() {
    let mut lua = interpreter();
    let reply = eval_in(&mut lua, "error(setmetatable({}, {__newindex = function() error('again') end}))");
    assert_eq!(reply, "-ERR user_script:1: again script: on @user_script:1.\r\n");
    assert_eq!(eval_in(&mut lua, "return 1"), ":1\r\n");
}

/// The error's fields are asked for with metamethods, which may fail in turn, with a table like it.
#[test]
fn an_error_that_fails_when_it_is_read() {
    let mut lua = interpreter();
    let scripts = [
        "error(setmetatable({}, {__index = function() error('again') end}))",
        "error(setmetatable({}, {__index = function(t) error(t) end}))",
        "error(setmetatable({err = 'E'}, {__index = function(t) error(t) end, __newindex = function(t) error(t) end}))",
        "return setmetatable({err = 'E'}, {__index = function(t) error(t) end})",
        "return setmetatable({err = 'E'}, {__index = function() error() end})",
        "return setmetatable({err = 'E'}, {__index = function() error(5) end})",
    ];
    for script in scripts {
        let reply = eval_in(&mut lua, script);
        assert!(reply.starts_with('-'), "{script}: {reply}");
        assert_eq!(eval_in(&mut lua, "return redis.call('ping')"), "+PONG\r\n", "after {script}");
    }
}
