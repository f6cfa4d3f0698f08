"""What an application does with redis-py, against the server on 127.0.0.1:<port>.

Each step prints `ok <step>` when it has passed; the first thing that is not as it should be ends the program.
"""

import asyncio
import sys
import threading

import redis
import redis.asyncio

PORT = int(sys.argv[1])


def connect(**options):
    return redis.Redis(host="127.0.0.1", port=PORT, socket_timeout=10, **options)


def expect(got, wanted):
    if got != wanted:
        raise AssertionError(f"got {got!r}, wanted {wanted!r}")


def expect_error(text, kind, call):
    try:
        got = call()
    except kind as error:
        expect(str(error), text)
    else:
        raise AssertionError(f"got {got!r}, wanted the error {text!r}")


def step_connect():
    client = connect(decode_responses=True)
    expect(client.ping(), True)
    expect(client.echo("hello"), "hello")
    client.client_setname("snake")
    expect(client.client_getname(), "snake")
    expect(client.info("server")["redis_version"], "7.2.4")
    mine = [each for each in client.client_list() if each["name"] == "snake"]
    expect([each["lib-name"] for each in mine], ["redis-py"])


def step_resp(version):
    client = connect(protocol=version, decode_responses=True)
    expect(client.config_get("maxmemory-policy"), {"maxmemory-policy": "noeviction"})
    expect(client.client_info()["resp"], str(version))
    expect(client.get("absent"), None)
    expect(client.mget("absent", "missing"), [None, None])


def step_pipeline():
    pipe = connect().pipeline(transaction=False)
    for number in range(1000):
        pipe.set(f"pipe:{number}", number)
    for number in range(1000):
        pipe.get(f"pipe:{number}")
    expect(pipe.execute(), [True] * 1000 + [b"%d" % number for number in range(1000)])


def step_transaction():
    client = connect()
    pipe = client.pipeline(transaction=True)
    pipe.set("balance", 10).incrby("balance", 5).get("balance")
    expect(pipe.execute(), [True, 15, b"15"])
    pipe = client.pipeline(transaction=True)
    pipe.set("word", "text").incr("word").set("after", "1")
    replies = pipe.execute(raise_on_error=False)
    expect([replies[0], str(replies[1]), replies[2]], [True, NOT_A_NUMBER, True])


def step_watch():
    client, other = connect(), connect()
    client.set("watched", 1)
    pipe = client.pipeline()
    pipe.watch("watched")
    other.set("watched", 2)
    pipe.multi()
    pipe.set("watched", 3)
    try:
        got = pipe.execute()
    except redis.WatchError:
        pass
    else:
        raise AssertionError(f"a watched key was changed, and EXEC answered {got!r}")
    expect(client.get("watched"), b"2")
    pipe.watch("watched")
    pipe.multi()
    pipe.set("watched", 4)
    expect(pipe.execute(), [True])


NOT_A_NUMBER = "value is not an integer or out of range"


def step_errors():
    client = connect()
    client.set("word", "text")
    expect_error(NOT_A_NUMBER, redis.ResponseError, lambda: client.incr("word"))
    expect_error(
        "wrong number of arguments for 'get' command", redis.ResponseError, lambda: client.execute_command("GET")
    )
    expect_error(
        "unknown command 'NOSUCH', with args beginning with: 'a' 'b' ",
        redis.ResponseError,
        lambda: client.execute_command("NOSUCH", "a", "b"),
    )
    expect_error("DB index is out of range", redis.ResponseError, lambda: client.execute_command("SELECT", 99))
    expect(client.get("word"), b"text")


def step_binary():
    client = connect()
    every_byte = bytes(range(256)) + b"\r\n$3\r\n\x00"
    client.set(every_byte, every_byte[::-1])
    expect(client.get(every_byte), every_byte[::-1])
    expect(client.exists(every_byte[:-1]), 0)


def step_large():
    client = connect()
    value = bytes(range(256)) * (4 << 12)
    client.set("large", value)
    expect(client.get("large"), value)
    expect(client.strlen("large"), 4 << 20)


def step_expiry():
    client = connect()
    client.set("short", "x", px=50)
    client.set("long", "x", ex=100)
    expect(0 < client.ttl("long") <= 100, True)
    expect(client.persist("long"), True)
    expect(client.ttl("long"), -1)
    for _ in range(200):
        if client.get("short") is None:
            return
        threading.Event().wait(0.01)
    raise AssertionError("a key outlives its time to live")


def step_scan():
    client = connect()
    client.flushdb()
    client.mset({f"scan:{number}": number for number in range(2000)})
    client.mset({f"other:{number}": number for number in range(500)})
    found = set(client.scan_iter(match="scan:*", count=100))
    expect(found, {b"scan:%d" % number for number in range(2000)})
    expect(client.dbsize(), 2500)


def step_parallel():
    client = connect()
    client.delete("counter")

    def count():
        for _ in range(250):
            client.incr("counter")

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(client.get("counter"), b"2000")


async def use_asyncio():
    client = redis.asyncio.Redis(host="127.0.0.1", port=PORT)
    await client.set("async", 1)
    counted = await asyncio.gather(*(client.incr("async") for _ in range(50)))
    expect(sorted(counted), list(range(2, 52)))
    await client.aclose()


def step_auth():
    client = connect()
    client.config_set("requirepass", "open sesame")
    expect_error("Authentication required.", redis.AuthenticationError, lambda: connect(protocol=2).ping())
    expect_error(
        "invalid username-password pair or user is disabled.",
        redis.AuthenticationError,
        lambda: connect(password="wrong").ping(),
    )
    expect(connect(password="open sesame").ping(), True)
    expect(connect(username="default", password="open sesame", protocol=3).ping(), True)
    client.config_set("requirepass", "")


STEPS = [
    ("connect", step_connect),
    ("resp2", lambda: step_resp(2)),
    ("resp3", lambda: step_resp(3)),
    ("pipeline", step_pipeline),
    ("transaction", step_transaction),
    ("watch", step_watch),
    ("errors", step_errors),
    ("binary", step_binary),
    ("large", step_large),
    ("expiry", step_expiry),
    ("scan", step_scan),
    ("parallel", lambda: (step_parallel(), asyncio.run(use_asyncio()))),
    ("auth", step_auth),
]

for name, step in STEPS:
    step()
    print("ok", name, flush=True)
