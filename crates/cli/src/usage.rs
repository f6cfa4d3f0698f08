//! The text of `isotherm-cli --help`.

pub const USAGE: &str = "\
Usage: isotherm-cli [options] [command [argument ...]]

Without a command it starts an interactive session; type \"help\" there.

Connection
  -h <host>, -p <port>     the server (127.0.0.1, 6379)
  -s <socket>              connect to a unix socket instead
  -u <uri>                 valkey://user:password@host:port/db, or redis://...; valkeys:// and rediss:// are under TLS
  -a, --pass <password>    AUTH; ISOTHERMCLI_AUTH, VALKEYCLI_AUTH or REDISCLI_AUTH keep it out of the process list
  --user <name>            the user of that password
  --askpass                prompt for the password
  --no-auth-warning        no warning about a password in the command line
  -n <db>                  SELECT this database first
  -t <seconds>             give up connecting after this time
  -4, -6                   prefer IPv4 or IPv6
  -c                       cluster mode: follow MOVED and ASK
  -2, -3                   start with this version of RESP
  --tls                    connect under TLS
  --cacert <file>, --cacertdir <folder>
                           authorities that are believed (the system's, without them)
  --cert <file>, --key <file>
                           what is shown to a server that asks for a certificate
  --sni <name>             the name that is sent to the server
  --insecure               do not look at the server's certificate
  --tls-ciphers <list>, --tls-ciphersuites <list>
                           suites of TLS 1.2, in OpenSSL's language, and of TLS 1.3, by name

The command
  -r <count>, -i <seconds> repeat it (below 0: forever), with a pause in between
  -x                       read the last argument from standard input
  -X <tag>                 read the argument <tag> from standard input
  -e                       exit with status 1 after an error reply
  --quoted-input           arguments are quoted strings with escapes
  --eval <file> [key ...] , [arg ...]
                           EVAL the script in a file
  --ldb-sync-mode          debug it, in the server: what it changes stays changed
  --ldb                    debug it in a copy of the server, where the server can be copied (Isotherm cannot)

The output
  --raw, --no-raw          plain bytes (the default in a pipe), or formatted for people
  --csv, --json, --quoted-json
  -d <text>, -D <text>     delimiter between the parts of a raw reply, and after it
  --show-pushes <yes|no>   whether to show push messages
  --verbose                more output

Other modes
  --pipe                   send RESP from standard input to the server, count the replies
  --pipe-timeout <seconds> how long to wait for the last reply (30; 0: forever)
  --rdb <file>             save the server's data as an RDB file; - is standard output
  --functions-rdb <file>   the same, of its functions only
  --replica                show the commands that a replica gets
  --scan                   list keys; filters: --pattern, --quoted-pattern, --count, --type
  --bigkeys, --memkeys, --memkeys-samples <n>
                           the largest keys of each type, by elements or by bytes
  --hotkeys, --hotkeys-count <n>
                           the most frequently used keys (needs an LFU policy)
  --stat                   one line of statistics per second
  --latency, --latency-history, --latency-dist [--mono]
                           latency of PING
  --intrinsic-latency <s>  latency that this machine adds to a process
  --lru-test <keys>        simulated cache: 80 % of the requests to 20 % of the keys
  --cluster <command> [args] [options]
                           the cluster manager: create, check, info, fix, reshard, rebalance, add-node, del-node, call,
                           set-timeout, import, backup; `--cluster help` lists their options
  --help, --version
";
