//! Comparison of scripts with a real Valkey, if one is on PATH: the replies are equal, to the byte.
//!
//! Scripts come from a list and from a generator with a seed. Its programs are made of arithmetic, strings,
//! patterns, tables in the order of `pairs`, errors, and the commands that the model has.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use isotherm_resp::{Protocol, reply_parse};
use isotherm_stdx::Prng;

use crate::model::{Model, eval_with, interpreter};

/// Programs of one run; `SCRIPTS=200000` in the environment makes it longer.
const SCRIPTS_DEFAULT: usize = 3000;

struct Peer {
    process: Child,
    socket: UnixStream,
    folder: PathBuf,
}

impl Drop for Peer {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Peer {
    /// Starts the peer. `None`, with a message that says why, if there is none.
    fn start(name: &str) -> Option<Peer> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path)
            .map(|folder| folder.join("valkey-server"))
            .find(|path| path.is_file());
        let Some(program) = found else {
            eprintln!("skipped: no valkey-server on PATH to compare with");
            return None;
        };
        let folder = std::env::temp_dir().join(format!("isotherm-script-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the peer");
        let path = folder.join("socket");
        let mut process = Command::new(program)
            .args(["--port", "0", "--save", "", "--enable-debug-command", "yes", "--unixsocket"])
            .arg(&path)
            .current_dir(&folder)
            .stdout(Stdio::null())
            .spawn()
            .expect("the peer starts");
        let Some(socket) = connect(&path) else {
            _ = process.kill();
            panic!("the peer does not listen");
        };
        Some(Peer { process, socket, folder })
    }

    fn ask(&mut self, words: &[&str]) -> String {
        let mut request = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| request.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        self.socket.write_all(request.as_bytes()).expect("the peer reads");
        let mut reply = Vec::new();
        let mut part = [0; 65536];
        loop {
            let count = self.socket.read(&mut part).expect("the peer answers");
            assert!(count > 0, "the peer hung up on {words:?}");
            reply.extend_from_slice(&part[..count]);
            let end = reply_parse::ReplyReader::new().find_end(&reply).expect("a reply");
            if end == Some(reply.len()) {
                return String::from_utf8_lossy(&reply).into_owned();
            }
        }
    }
}

fn connect(path: &Path) -> Option<UnixStream> {
    (0..500).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let socket = UnixStream::connect(path).ok()?;
        socket.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
        Some(socket)
    })
}

/// The libraries are compared elsewhere.
const NAMES: &str = "local skip = {cjson=1, cmsgpack=1, struct=1, bit=1} local t = {} for k, v in pairs(_G) do \
    if not skip[k] then t[#t+1] = tostring(k) .. ' ' .. type(v) end end table.sort(t) return t";

const FIXED: &[&str] = &[
    NAMES,
    "local t = {} for k, v in pairs(redis) do t[#t+1] = k .. ' ' .. (type(v) == 'function' and 'f' or v) end return t",
    "local t = {} for k in pairs(string) do t[#t+1] = k end return t",
    "local t = {} for k in pairs(table) do t[#t+1] = k end return t",
    "local t = {} for k in pairs(math) do t[#t+1] = k end return t",
    "local t = {} for k in pairs(coroutine) do t[#t+1] = k end return t",
    "local t = {} for k in pairs(os) do t[#t+1] = k end return t",
    "return {_VERSION, redis.REDIS_VERSION_NUM, redis == server, type(_G), tostring(nil), tostring(1e15), tostring(2^53), 0.1 .. ''}",
    "return {math.random(10), math.random(3, 9), tostring(math.random())}",
    "math.randomseed(42) return {math.random(1000000), math.random(-5, 5), tostring(math.random())}",
    "return math.random(0)",
    "return math.random(2, 1)",
    "return math.random(1, 2, 3)",
    "x = 1",
    "return x",
    "return _G[1]",
    "return _G[{}]",
    "rawset(_G, 'x', 1)",
    "string.x = 1",
    "getmetatable('').__index = 1",
    "setmetatable(_G, nil)",
    "return getmetatable(_G)",
    "return type(getmetatable(_G).__index)",
    "return getmetatable(_G).__index()",
    "return getmetatable(_G).__index(1, 2, 3)",
    "return getmetatable(_G).__index(1, {})",
    "return newproxy",
    "return __redis__err__handler('x')",
    "return __redis__err__handler({err='x', 1})",
    "return __redis__err__handler() .err",
    "local t = __redis__err__handler('x') return {t.err, t.source, t.line}",
    "return xpcall(function() error('x') end, __redis__err__handler)",
    "return select(2, xpcall(function() error('x') end, __redis__err__handler)).line",
    "error('x', 0)",
    "error('x', 2)",
    "error({err='x', source='there', line=7})",
    "error({err='x', ok='y'})",
    "error({err={}})",
    "error({err=5})",
    "error(5)",
    "error(true)",
    "error(function() end and nil)",
    "error(setmetatable({}, {__index={err='from index'}}))",
    "error(setmetatable({}, {__index=function(t, k) return k end}))",
    "error('a\\0b')",
    "error('one\\ntwo\\r\\n')",
    "error({err='one\\ntwo\\r\\n'})",
    "local function f() error('x') end\nlocal function g()\n f()\nend\n\ng()",
    "return (function()\n return redis.call('get') end)()",
    "return redis.call('get')",
    "return redis.pcall('get')",
    "redis.call('rpush', 'l', 1) return redis.call('get', 'l')",
    "redis.call('rpush', 'l', 1) return redis.pcall('get', 'l')",
    "redis.call('rpush', 'l', 1) return redis.pcall('get', 'l').err",
    "redis.call('rpush', 'l', 1) return {pcall(redis.call, 'get', 'l')}",
    "local ok, e = pcall(redis.call, 'nosuch') return type(e)",
    "local t = redis.pcall('nosuch') local n = 0 for k in pairs(t) do n = n + 1 end return n",
    "redis.call('set', 'a', 'x') return redis.call('incr', 'a')",
    "return redis.error_reply('a b')",
    "return redis.error_reply('-a b\\r\\n')",
    "return redis.error_reply('ab\\r\\n')",
    "return redis.error_reply('')",
    "return redis.error_reply('-')",
    "return redis.error_reply('- ')",
    "return redis.error_reply(' a')",
    "return redis.error_reply(1)",
    "return redis.error_reply('a', 'b')",
    "return redis.status_reply('a b\\r\\nc')",
    "return redis.status_reply('')",
    "return redis.status_reply({})",
    "return redis.sha1hex('abc')",
    "return redis.sha1hex(1.5)",
    "return redis.sha1hex(nil)",
    "return redis.sha1hex(1, 2)",
    "redis.log()",
    "redis.log('a', 'b')",
    "redis.log(4, 'b')",
    "redis.log(-1, 'b')",
    "return redis.log('1', 'b')",
    "redis.setresp()",
    "redis.setresp(1)",
    "redis.setresp('x')",
    "redis.setresp(2.9) redis.call('hset', 'h', 'a', 1) return redis.call('hgetall', 'h')",
    "redis.setresp(3) redis.call('hset', 'h', 'a', 1) return redis.call('hgetall', 'h')",
    "redis.setresp(3) redis.call('sadd', 'h', 'a') return redis.call('smembers', 'h')",
    "redis.setresp(3) return redis.call('get', 'nosuch')",
    "redis.setresp(3) return {redis.call('get', 'nosuch'), 1}",
    "redis.set_repl()",
    "redis.set_repl(7)",
    "redis.set_repl(-1)",
    "return redis.set_repl(0)",
    "return redis.acl_check_cmd('nosuch')",
    "return redis.acl_check_cmd()",
    "return redis.acl_check_cmd({})",
    "return redis.acl_check_cmd('get', 'x')",
    "return redis.call({})",
    "return redis.call()",
    "return redis.pcall()",
    "return redis.pcall(true)",
    "return redis.breakpoint()",
    "return redis.debug(1, 'x')",
    "return redis.replicate_commands()",
    "return {1, 2, nil, 3}",
    "return {1.9, -1.9, 1e300, -1e300, 0/0, 2^53}",
    "return {{{{}}}, {ok='x'}, {err='y'}, false, true}",
    "return {err='a', ok='b'}",
    "return {err=1, ok='b'}",
    "return {ok=1}",
    "return {double='1.5'}",
    "return {double=1e-10}",
    "return {double=1/0}",
    "return {double=0/0}",
    "return {double=-0.0}",
    "return {big_number='1\\r\\n2'}",
    "return {big_number=12}",
    "return {verbatim_string={format='txt', string='a\\0b'}}",
    "return {verbatim_string={format='t', string='ab'}}",
    "return {verbatim_string={format='long', string='ab'}}",
    "return {verbatim_string={string='ab'}, 7}",
    "return {verbatim_string={format='txt', string=1}, 7}",
    "return {map={a=1, b={2}, [3]={map={}}}}",
    "return {set={a=true, b=false, [3]=1}}",
    "return {map={[{1}]={2}}}",
    "return {map={a={set={b=true}}, c={double=2.5}}}",
    "redis.setresp(3) return {true, false, {map={a=true}}}",
    "local t = setmetatable({}, {__index=function() return 1 end}) return t",
    "local t = setmetatable({}, {__index={ok='x'}}) return t",
    "return function() end",
    "return coroutine.create(function() end)",
    "return string.rep('x', 100)",
    "return '\\0\\1\\2'",
    "return",
    "",
    "   ",
    "return 1 return 2",
    "return 1 +",
    "return 'unfinished",
    "for",
    "x =",
    "goto a",
    "return [==[ x",
    "return 0x10 .. 1e5",
    "\u{1b}Lua",
    "#!lua\nreturn 1",
    "return (loadstring('return 1 +'))",
    "return select(2, loadstring('return 1 +'))",
    "return select(2, loadstring('return 1 +', 'name'))",
    "return select(2, loadstring('return 1 +', '=name'))",
    "return loadstring('return ...', 'x')(5)",
    "return loadstring('error(1)', '@there')()",
    "return #string.dump(function() end) > 0",
    "return loadstring(string.dump(function() return 1 end))",
    "return {unpack({1, 2, 3}, 2)}",
    "return {unpack({}, 1, 8000)}",
    "return unpack({}, 0, 2147483647)",
    "return table.concat({1, 2, {}, 3})",
    "return ('x'):bad()",
    "return nil .. 'x'",
    "return {} < {}",
    "return 1 < 'x'",
    "return #5",
    "local t = {} t[nil] = 1",
    "local t = {} t[0/0] = 1",
    "return next({}, 'x')",
    "return ipairs()",
    "return setmetatable(1, {})",
    "return tostring()",
    "return tonumber('z', 36)",
    "return tonumber('0x1p4')",
    "return tonumber('  12  ')",
    "return tonumber('1e')",
    "return {tonumber('10', 2), tonumber('7', 8), tonumber('ff', 16)}",
    "return string.format('%5d|%-5s|%05.1f|%x|%q|%c|%g|%i', 42, 'ab', 3.14159, 255, 'a\\n\"b\\0', 65, 1e20, 7)",
    "return string.format('%s', {}) ",
    "return string.format('%d', 'x')",
    "return string.format('%y', 1)",
    "return string.format('%')",
    "return string.format('%0100d', 1)",
    "return {string.find('hello world', 'o w'), string.find('a.b', '.', 1, true), string.find('abc', 'b', -1)}",
    "return {string.gsub('hello world', '(%w+)', '<%1>')}",
    "return {string.gsub('abc', '', '-')}",
    "return {string.gsub('hello', 'l', {l='L'})}",
    "return {string.gsub('hello', 'l', function(c) return nil end, 1)}",
    "return string.gsub('hello', 'l', '%2')",
    "return string.gsub('hello', '(', 'x')",
    "return string.find('x', '[a')",
    "return string.find('x', '%')",
    "return string.find('x', '%f')",
    "return {string.match('key=value', '(%w+)=(%w+)')}",
    "return {string.match('  x  ', '^%s*(.-)%s*$'), string.match('2024-01-02', '()%d+()')}",
    "local t = {} for k, v in string.gmatch('a=1, b=2', '(%w+)=(%w+)') do t[#t+1] = k .. v end return t",
    "return {string.byte('abc', 1, -1)}",
    "return string.char(256)",
    "local co = coroutine.wrap(function(a) local b = coroutine.yield(a + 1) return b * 2 end) return {co(1), co(5)}",
    "local co = coroutine.create(function() error('x') end) return {coroutine.resume(co)}",
    "local co = coroutine.create(function() return redis.call('ping') end) return {coroutine.resume(co)}",
    "return coroutine.wrap(function() error('in') end)()",
    "return coroutine.yield(1)",
    "local function f() return 1 + f() end return f()",
    "local function f() return (string.gsub('x', 'x', f)) end return f()",
    "return tostring(select(2, pcall(string.rep)))",
    "return pcall(error)",
    "return {pcall(error, {err='a'})}",
    "return {pcall(error, {})}",
    "return {xpcall(function() return 1, 2 end, nil)}",
    "return collectgarbage('bad')",
    "return collectgarbage('step') == nil",
    "return {math.floor(-1.5), math.ceil(1.2), math.max(1, 3, 2), math.fmod(-5, 3), -5 % 3, 5 % -3, 2 ^ 10}",
    "return tostring(-5 % 0)",
    "return {1 == 1.0, '1' == 1, 1 .. '' == '1', 10 / 2, '10' + 5, '0x10' + 0}",
    "return 'a' + 1",
    "return -{}",
    "local t = {5, 2, 8, 1} table.sort(t) return t",
    "local t = {5, 2, 8, 1} table.sort(t, function(a, b) return a > b end) return t",
    "local t = {1, 2, 3} table.sort(t, function() return true end) return t",
    "local t = {1, 'x'} table.sort(t)",
    "local t = {1, 2, 3} table.insert(t, 2, 'x') table.remove(t, 1) return t",
    "table.insert({}, 1, 2, 3)",
    "table.insert(nil, 1)",
    "return {table.getn({1, 2}), table.maxn({[10] = 1})}",
    "table.setn({}, 1)",
    "local t = {} for i = 1, 3 do t[i] = i end t[2] = nil return {#t, t}",
    "local a = 1 do local a = 2 end return a",
    "return arg",
    "local function f(...) return select('#', ...), arg.n end return {f(1, nil, 3)}",
    "return {select(-1, 1, 2, 3), select(2, 'a', 'b')}",
    "return select(0)",
    "KEYS[1] = 'x' ARGV.y = 1 return {KEYS, ARGV.y}",
    "KEYS = {}",
    "return os.clock() >= 0",
    "return os.time",
    "return string.rep('ab', -1) .. string.reverse('abc') .. string.upper('x') .. string.sub('hello', -3, -2)",
];

#[test]
fn fixed_scripts() {
    let Some(mut peer) = Peer::start("fixed") else { return };
    let mut lua = interpreter();
    let mut differences = Vec::new();
    for hello in ["2", "3"] {
        peer.ask(&["HELLO", hello]);
        for script in FIXED {
            if hello == "3" && script.contains("math.random") {
                continue;
            }
            compare(&mut peer, &mut lua, hello, script, &mut differences);
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n\n"));
}

fn compare(
    peer: &mut Peer,
    lua: &mut isotherm_script::Interpreter,
    hello: &str,
    script: &str,
    differences: &mut Vec<String>,
) {
    peer.ask(&["FLUSHALL"]);
    let theirs = peer.ask(&["EVAL", script, "2", "k1", "k2", "a1"]);
    let proto = if hello == "3" { Protocol::Resp3 } else { Protocol::Resp2 };
    let shown = script.strip_prefix("#!lua").unwrap_or(script);
    let ours = eval_with(lua, &mut Model::default(), proto, shown, &["k1", "k2"], &["a1"]).0;
    if ours != theirs {
        differences.push(format!("RESP{hello} {script}\n theirs {theirs:?}\n ours   {ours:?}"));
    }
}

#[test]
fn generated_scripts() {
    let Some(mut peer) = Peer::start("generated") else { return };
    let count = std::env::var("SCRIPTS").ok().and_then(|text| text.parse().ok()).unwrap_or(SCRIPTS_DEFAULT);
    let mut random = Prng::new(15);
    let mut lua = interpreter();
    let mut differences = Vec::new();
    for number in 0..count {
        let script = Program::new(&mut random).script();
        let hello = if number % 2 == 0 { "2" } else { "3" };
        peer.ask(&["HELLO", hello]);
        compare(&mut peer, &mut lua, hello, &script, &mut differences);
        if number % 500 == 499 {
            lua.forget_all();
            peer.ask(&["SCRIPT", "FLUSH"]);
        }
        assert!(
            differences.len() < 10,
            "{} of {number} differ:\n{}",
            differences.len(),
            differences.join("\n\n")
        );
    }
    assert!(differences.is_empty(), "{} of {count} differ:\n{}", differences.len(), differences.join("\n\n"));
}

/// Random program: some statements on three variables, and their values at the end.
struct Program<'a> {
    random: &'a mut Prng,
    text: String,
}

impl<'a> Program<'a> {
    fn new(random: &'a mut Prng) -> Program<'a> {
        Program { random, text: String::new() }
    }

    fn script(mut self) -> String {
        self.text.push_str(STR);
        self.text.push_str("local a, b, c = 1, 'two', {3, x = 'y'}\n");
        if self.below(4) == 0 {
            self.text.push_str("redis.setresp(3)\n");
        }
        for _ in 0..1 + self.below(6) {
            let statement = self.statement(2);
            self.text.push_str(&statement);
            self.text.push('\n');
        }
        self.text.push_str(SHOW);
        self.text
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn pick<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.below(texts.len() as u64) as usize]
    }

    fn statement(&mut self, depth: u32) -> String {
        let name = self.pick(&["a", "b", "c"]);
        let value = self.value(depth + 1);
        match self.below(if depth == 0 { 4 } else { 10 }) {
            0..=3 => format!("{name} = {value}"),
            4 => format!(
                "if {value} then {} else {} end",
                self.statement(depth - 1),
                self.statement(depth - 1)
            ),
            5 => format!("for i = 1, {} do {} end", 1 + self.below(5), self.statement(depth - 1)),
            6 => format!("if type({name}) == 'table' then {name}[str({})] = {value} end", self.value(0)),
            7 => format!("{name} = {{pcall(function() {} return {value} end)}}", self.statement(depth - 1)),
            8 => format!("{name} = redis.{}({})", self.pick(&["call", "pcall", "pcall"]), self.command()),
            _ => format!("local {name} = {value}"),
        }
    }

    fn command(&mut self) -> String {
        let key = self.pick(&["'k1'", "'k2'", "KEYS[1]", "KEYS[2]"]);
        let value = self.value(1);
        match self.below(9) {
            0 => format!("'get', {key}"),
            1 => format!("'set', {key}, ({value})"),
            2 => format!("'incr', {key}"),
            3 => format!("'rpush', 'l', ({value}), {}", self.value(0)),
            4 => "'lrange', 'l', 0, -1".to_owned(),
            5 => format!("'echo', ({value})"),
            6 => "'ping'".to_owned(),
            7 => format!("'nosuch', ({value})"),
            _ => format!("'{}', 'h'", self.pick(&["hgetall", "smembers", "get"])),
        }
    }

    fn value(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self.leaf();
        }
        let (left, right) = (self.value(depth - 1), self.leaf());
        match self.below(17) {
            0..=2 => format!("({left} {} {right})", self.pick(&["+", "-", "*", "/", "%", "^"])),
            3 | 4 => format!("string.sub({left} .. {right}, 1, 300)"),
            5 => format!("({left} {} {right})", self.pick(&["==", "~=", "<", "<=", ">", ">="])),
            6 => format!("({left} {} {right})", self.pick(&["and", "or"])),
            7 => format!("({}{left})", self.pick(&["not ", "-", "#"])),
            8 => format!("{{{left}, {right}, k{} = {left}, [{}] = 'z'}}", self.below(40), self.below(20)),
            9 => format!("string.{}(str({left}), {})", self.pick(&["sub", "byte"]), self.below(9)),
            10 => format!("string.{}(str({left}), '{}')", self.pick(&["find", "match"]), self.pattern()),
            11 => {
                let (pattern, by) = (self.pattern(), self.pick(&["<%0>", "%1", "", "%%"]));
                format!("string.sub(string.gsub(str({left}), '{pattern}', '{by}'), 1, 300)")
            }
            12 => format!(
                "string.format('{}', {left})",
                self.pick(&["%d", "%5.2f", "%s", "%q", "%x", "%g", "%e", "%-8s|"])
            ),
            13 => format!(
                "{}({left})",
                self.pick(&[
                    "str",
                    "tonumber",
                    "type",
                    "#str",
                    "math.floor",
                    "math.abs",
                    "math.sqrt",
                    "next",
                    "string.upper",
                    "string.len"
                ])
            ),
            15 => format!("string.sub(string.rep(str({left}), {}), 1, 300)", self.below(9)),
            14 => format!("(function(...) return select('#', ...) + {} end)({left}, {right})", self.below(5)),
            _ => left,
        }
    }

    fn pattern(&mut self) -> String {
        (0..1 + self.below(4))
            .map(|_| {
                self.pick(&[
                    "%d", "%a+", ".", ".-", "(%w)", "[^0-9]", "[%s.]*", "t", "wo?", "%.", "()", "^", "$",
                    "%b()", "%f[%w]", "%1", "%", "(",
                ])
            })
            .collect()
    }

    fn leaf(&mut self) -> String {
        match self.below(14) {
            0..=4 => self.pick(&["a", "b", "c"]).to_owned(),
            5 => self.below(100).to_string(),
            6 => format!("{}.{}", self.below(1000), self.below(1000)),
            7 => self.pick(&["1e15", "1e16", "2^53", "-0.5", "1e300", "0x1f", "1/0", "1e-7"]).to_owned(),
            8 | 9 => self
                .pick(&["'12'", "'abc'", "'a\\0b'", "''", "'1e3'", "' 7 '", "'two words'", "'\\r\\n'"])
                .to_owned(),
            10 => self.pick(&["nil", "true", "false"]).to_owned(),
            11 => self.pick(&["KEYS[1]", "ARGV[1]", "#KEYS", "KEYS[3]"]).to_owned(),
            12 => self.pick(&["c.x", "c[1]", "b.x", "(c).y"]).to_owned(),
            _ => self
                .pick(&[
                    "{ok = 'fine'}",
                    "{err = 'E text'}",
                    "{1, {2}}",
                    "{double = 1.5}",
                    "{map = {q = 1}}",
                    "{}",
                ])
                .to_owned(),
        }
    }
}

/// Addresses differ, so programs do not see any.
const STR: &str = "local function str(v)
  if type(v) == 'table' or type(v) == 'function' then return 'T' end
  return tostring(v)
end
";

/// Tables in the order of `pairs`.
const SHOW: &str = "local seen = {}
local function show(v)
  if type(v) == 'function' then return 'f' end
  if type(v) ~= 'table' then return tostring(v) end
  if seen[v] then return 'again' end
  seen[v] = true
  local t = {}
  for k, x in pairs(v) do t[#t + 1] = show(k) .. '=' .. show(x) end
  return '{' .. table.concat(t, ',') .. '}'
end
local text = show(a) .. ';' .. show(b) .. ';' .. show(c)
if #text > 200 then text = redis.sha1hex(text) end
return {text, a, b, c}";
