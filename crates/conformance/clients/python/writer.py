"""A writer of a cluster that keeps a model of what it wrote, with redis-py:
<port of a node> <prefix of its keys> <keys> <operations a second> <hash tags, with commas> <seconds between loads of the topology>.
Libraries that load the topology when a node is gone have no use for the last one.

It works until `check` comes on its standard input: then it reads all of its keys, and says `checked <operations> <errors> <keys that are there>
<new clients>` if each is what the model allows, and goes on at `go`. At `end` it ends. `FAULT ...` says what is not as the model has it.

The model of a key is the list of values that it may have: one, or two behind an operation of which it is not known whether it was
done. An error that the server answers means that it was not.

A library may lose its way where nodes come and go: it fails by a bug of its own, or finds no owner of a slot for seconds. The program then
makes a new client, as a user's would, and counts it.
"""

import random
import select
import sys
import time

import redis
from redis.cluster import RedisCluster

PORT, PREFIX, KEYS, PACE = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
TAGS = sys.argv[5].split(",")
TRIES = 50
# Of these, before a new client is tried.
TRIES_OF_CLIENT = 25
# A topology without an owner of the slot is none of the first kind.
ERRORS = (redis.RedisError, redis.exceptions.RedisClusterException)


def connect():
    return RedisCluster(host="127.0.0.1", port=PORT, socket_timeout=10, decode_responses=True)


def name(at):
    return f"{{{TAGS[at % len(TAGS)]}}}{PREFIX}{at}"


class Fault(Exception):
    pass


class Writer:
    def __init__(self):
        self.client = connect()
        self.random = random.Random(PREFIX)
        self.models = [[None] for _ in range(KEYS)]
        self.version = self.operations = self.errors = self.renewed = 0

    def renew(self, error):
        print(f"a new client, for {error!r}", file=sys.stderr, flush=True)
        self.renewed += 1
        for tries in range(TRIES):
            try:
                self.client = connect()
                return
            except ERRORS as error:
                if tries + 1 == TRIES:
                    raise Fault(f"it cannot connect: {error!r}")
                time.sleep(0.1)

    def fresh(self):
        self.version += 1
        return f"{self.version}-" + "x" * (self.version * 37 % 3000)

    # Four kinds of keys: a string, a counter, a hash with two fields, and a pair of strings in one slot.

    def read(self, at):
        client, key = self.client, name(at)
        match at % 4:
            case 0 | 1:
                return client.get(key)
            case 2:
                fields = client.hgetall(key)
                return self.same(at, list(fields.values())) if fields else None
            case _:
                return self.same(at, client.mget(key + "a", key + "b"))

    def same(self, at, values):
        if len(values) != 2 or values[0] != values[1]:
            raise Fault(f"{name(at)} is torn: {[str(value)[:20] for value in values]}")
        return values[0]

    def write(self, at):
        """Returns what it may be once it is done, and does it."""
        client, key = self.client, name(at)
        match at % 4:
            case 1:
                return [str(int(value or 0) + 1) for value in self.models[at]], lambda: str(client.incr(key))
            case 0 if self.random.random() < 0.2:
                return [None], lambda: client.delete(key)
            case 0:
                value = self.fresh()
                return [value], lambda: client.set(key, value)
            case 2:
                value = self.fresh()
                return [value], lambda: client.hset(key, mapping={"f": value, "g": value})
            case _:
                value = self.fresh()
                return [value], lambda: client.mset({key + "a": value, key + "b": value})

    def work(self):
        at = self.random.randrange(KEYS)
        if self.random.random() < 0.5:
            return self.change(at)
        self.operations += 1
        try:
            got = self.read(at)
        except ERRORS:
            self.errors += 1
        except Fault:
            raise
        except Exception as error:
            self.errors += 1
            self.renew(error)
        else:
            self.expect(at, got)

    def change(self, at):
        self.operations += 1
        wanted, write = self.write(at)
        try:
            got = write()
        except redis.ResponseError:
            self.errors += 1
        except Exception as error:
            self.errors += 1
            self.models[at] = self.models[at] + wanted
            if not isinstance(error, ERRORS):
                self.renew(error)
        else:
            if at % 4 == 1:
                if got not in wanted:
                    raise Fault(f"INCR {name(at)} is {got}, not of {wanted}")
                wanted = [got]
            self.models[at] = wanted

    def expect(self, at, got):
        if got not in self.models[at]:
            wanted = [value and value[:20] for value in self.models[at]]
            raise Fault(f"{name(at)} is {got and got[:20]}, not of {wanted}")
        self.models[at] = [got]

    def check(self):
        for at in range(KEYS):
            for tries in range(TRIES):
                try:
                    got = self.read(at)
                    break
                except Fault:
                    raise
                except Exception as error:
                    if tries + 1 == TRIES:
                        raise Fault(f"{name(at)} cannot be read: {error!r}")
                    if tries + 1 == TRIES_OF_CLIENT or not isinstance(error, ERRORS):
                        self.renew(error)
                    time.sleep(0.1)
            self.expect(at, got)
        # A pair is two keys.
        there = sum((2 if at % 4 == 3 else 1) for at in range(KEYS) if self.models[at] != [None])
        print(f"checked {self.operations} {self.errors} {there} {self.renewed}", flush=True)


def main():
    writer = Writer()
    for at in range(KEYS):
        writer.change(at)
    print("ready", flush=True)
    due = time.monotonic()
    while True:
        due = max(due + 1 / PACE, time.monotonic() - 0.1)
        wait = max(0, due - time.monotonic())
        if select.select([sys.stdin], [], [], wait)[0]:
            if sys.stdin.readline() in ("", "end\n"):
                return
            writer.check()
            sys.stdin.readline()
        writer.work()


try:
    main()
except Fault as fault:
    print(f"FAULT {fault}", flush=True)
    sys.exit(1)
