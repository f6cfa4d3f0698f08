// What an application does with go-redis, against the server on 127.0.0.1:<port>.
//
// Each step prints `ok <step>` when it has passed; the first thing that is not as it should be ends the program.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	ctx     = context.Background()
	address = "127.0.0.1:" + os.Args[1]
)

const notANumber = "ERR value is not an integer or out of range"

func connect(change ...func(*redis.Options)) *redis.Client {
	options := &redis.Options{Addr: address, ReadTimeout: 10 * time.Second, MaxRetries: -1}
	for _, each := range change {
		each(options)
	}
	return redis.NewClient(options)
}

func speaking(version int) func(*redis.Options) {
	return func(options *redis.Options) { options.Protocol = version }
}

func expect(got, wanted any) {
	if !reflect.DeepEqual(got, wanted) {
		panic(fmt.Sprintf("got %#v, wanted %#v", got, wanted))
	}
}

func must[T any](got T, err error) T {
	if err != nil {
		panic(err)
	}
	return got
}

func expectError(err error, text string) {
	if err == nil || err.Error() != text {
		panic(fmt.Sprintf("got the error %v, wanted %q", err, text))
	}
}

func stepConnect() {
	client := connect(func(options *redis.Options) { options.ClientName = "gopher" })
	defer client.Close()
	expect(must(client.Ping(ctx).Result()), "PONG")
	expect(must(client.Echo(ctx, "hello").Result()), "hello")
	expect(must(client.ClientGetName(ctx).Result()), "gopher")
	info := must(client.Info(ctx, "server").Result())
	expect(strings.Contains(info, "redis_version:7.2.4\r\n"), true)
	list := must(client.ClientList(ctx).Result())
	expect(strings.Contains(list, "lib-name=go-redis"), true)
}

func stepResp(version int) {
	client := connect(speaking(version))
	defer client.Close()
	policy := must(client.ConfigGet(ctx, "maxmemory-policy").Result())
	expect(policy, map[string]string{"maxmemory-policy": "noeviction"})
	list := must(client.Do(ctx, "CLIENT", "INFO").Text())
	expect(strings.Contains(list, fmt.Sprintf(" resp=%d ", version)), true)
	expect(client.Get(ctx, "absent").Err(), redis.Nil)
	expect(must(client.MGet(ctx, "absent", "missing").Result()), []any{nil, nil})
}

func stepPipeline() {
	client := connect()
	defer client.Close()
	pipe := client.Pipeline()
	gets := make([]*redis.StringCmd, 1000)
	for number := range gets {
		pipe.Set(ctx, fmt.Sprint("pipe:", number), number, 0)
	}
	for number := range gets {
		gets[number] = pipe.Get(ctx, fmt.Sprint("pipe:", number))
	}
	expect(len(must(pipe.Exec(ctx))), 2000)
	for number, get := range gets {
		expect(must(get.Int()), number)
	}
}

func stepTransaction() {
	client := connect()
	defer client.Close()
	var sum *redis.IntCmd
	must(client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "balance", 10, 0)
		sum = pipe.IncrBy(ctx, "balance", 5)
		return nil
	}))
	expect(must(sum.Result()), int64(15))
	replies, err := client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "word", "text", 0)
		pipe.Incr(ctx, "word")
		pipe.Set(ctx, "after", "1", 0)
		return nil
	})
	expectError(err, notANumber)
	expect(replies[2].Err(), nil)
}

func stepWatch() {
	client, other := connect(), connect()
	defer client.Close()
	defer other.Close()
	must(client.Set(ctx, "watched", 1, 0).Result())
	set := func(meanwhile bool) error {
		return client.Watch(ctx, func(tx *redis.Tx) error {
			if meanwhile {
				must(other.Set(ctx, "watched", 2, 0).Result())
			}
			_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Set(ctx, "watched", 3, 0)
				return nil
			})
			return err
		}, "watched")
	}
	expect(set(true), redis.TxFailedErr)
	expect(must(client.Get(ctx, "watched").Result()), "2")
	expect(set(false), nil)
	expect(must(client.Get(ctx, "watched").Result()), "3")
}

func stepErrors() {
	client := connect()
	defer client.Close()
	must(client.Set(ctx, "word", "text", 0).Result())
	expectError(client.Incr(ctx, "word").Err(), notANumber)
	expectError(client.Do(ctx, "GET").Err(), "ERR wrong number of arguments for 'get' command")
	expectError(client.Do(ctx, "NOSUCH", "a", "b").Err(),
		"ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' ")
	wrongDatabase := connect(func(options *redis.Options) { options.DB = 99 })
	defer wrongDatabase.Close()
	expectError(wrongDatabase.Ping(ctx).Err(), "ERR DB index is out of range")
	expect(must(client.Get(ctx, "word").Result()), "text")
}

func everyByte() string {
	var text strings.Builder
	for each := range 256 {
		text.WriteByte(byte(each))
	}
	return text.String() + "\r\n$3\r\n\x00"
}

func stepBinary() {
	client := connect()
	defer client.Close()
	key := everyByte()
	must(client.Set(ctx, key, key+key, 0).Result())
	expect(must(client.Get(ctx, key).Result()), key+key)
	expect(must(client.Exists(ctx, key[:len(key)-1]).Result()), int64(0))
}

func stepLarge() {
	client := connect()
	defer client.Close()
	value := strings.Repeat("0123456789abcdef", 1<<18)
	must(client.Set(ctx, "large", value, 0).Result())
	expect(must(client.Get(ctx, "large").Result()) == value, true)
	expect(must(client.StrLen(ctx, "large").Result()), int64(4<<20))
}

func stepExpiry() {
	client := connect()
	defer client.Close()
	must(client.Set(ctx, "short", "x", 50*time.Millisecond).Result())
	must(client.Set(ctx, "long", "x", 100*time.Second).Result())
	left := must(client.TTL(ctx, "long").Result())
	expect(left > 0 && left <= 100*time.Second, true)
	expect(must(client.Persist(ctx, "long").Result()), true)
	expect(must(client.TTL(ctx, "long").Result()), time.Duration(-1))
	for range 200 {
		if errors.Is(client.Get(ctx, "short").Err(), redis.Nil) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	panic("a key outlives its time to live")
}

func stepScan() {
	client := connect()
	defer client.Close()
	must(client.FlushDB(ctx).Result())
	for number := range 2000 {
		must(client.Set(ctx, fmt.Sprint("scan:", number), number, 0).Result())
		must(client.Set(ctx, fmt.Sprint("other:", number%500), number, 0).Result())
	}
	found := map[string]bool{}
	for keys := client.Scan(ctx, 0, "scan:*", 100).Iterator(); keys.Next(ctx); {
		found[keys.Val()] = true
	}
	expect(len(found), 2000)
	expect(must(client.DBSize(ctx).Result()), int64(2500))
}

func stepParallel() {
	client := connect()
	defer client.Close()
	must(client.Del(ctx, "counter").Result())
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 125 {
				must(client.Incr(ctx, "counter").Result())
			}
		})
	}
	all.Wait()
	expect(must(client.Get(ctx, "counter").Result()), "2000")
}

func stepAuth() {
	client := connect()
	defer client.Close()
	must(client.ConfigSet(ctx, "requirepass", "open sesame").Result())
	with := func(password string, version int) error {
		client := connect(speaking(version), func(options *redis.Options) { options.Password = password })
		defer client.Close()
		return client.Ping(ctx).Err()
	}
	expectError(with("", 2), "NOAUTH Authentication required.")
	expectError(with("wrong", 2), "WRONGPASS invalid username-password pair or user is disabled.")
	expectError(with("wrong", 3), "WRONGPASS invalid username-password pair or user is disabled.")
	expect(with("open sesame", 2), nil)
	expect(with("open sesame", 3), nil)
	must(client.ConfigSet(ctx, "requirepass", "").Result())
}

func main() {
	steps := []struct {
		name string
		run  func()
	}{
		{"connect", stepConnect},
		{"resp2", func() { stepResp(2) }},
		{"resp3", func() { stepResp(3) }},
		{"pipeline", stepPipeline},
		{"transaction", stepTransaction},
		{"watch", stepWatch},
		{"errors", stepErrors},
		{"binary", stepBinary},
		{"large", stepLarge},
		{"expiry", stepExpiry},
		{"scan", stepScan},
		{"parallel", stepParallel},
		{"auth", stepAuth},
	}
	for _, step := range steps {
		step.run()
		fmt.Println("ok", step.name)
	}
}
