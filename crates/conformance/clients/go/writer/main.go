// A writer of a cluster that keeps a model of what it wrote, with go-redis. What it is given and says is written in ../../python/writer.py.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	tries = 50
	// Of these, before a new client is tried.
	triesOfClient = 25
)

// A key that is not there.
const absent = ""

var (
	ctx    = context.Background()
	prefix = os.Args[2]
	keys   = number(os.Args[3])
	pace   = number(os.Args[4])
	tags   = strings.Split(os.Args[5], ",")
)

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return value
}

func fault(format string, values ...any) {
	fmt.Printf("FAULT "+format+"\n", values...)
	os.Exit(1)
}

type writer struct {
	client                               *redis.ClusterClient
	random                               *rand.Rand
	models                               [][]string
	version, operations, errors, renewed int
}

func connect() *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{"127.0.0.1:" + os.Args[1]}, ReadTimeout: 10 * time.Second,
		// A node that cannot be reached any more is no reason for it to load the topology; it does so every minute otherwise.
		ClusterStateReloadInterval: time.Duration(number(os.Args[6])) * time.Second,
		// It asks for pushes of itself, but loads the topology on them only if this is set.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeAuto},
	})
}

func (w *writer) renew(why error) {
	fmt.Fprintf(os.Stderr, "a new client, for %v\n", why)
	w.renewed++
	w.client.Close()
	w.client = connect()
}

func short(value string) string { return value[:min(20, len(value))] }

func (w *writer) fresh() string {
	w.version++
	return fmt.Sprintf("%d-%s", w.version, strings.Repeat("x", w.version*37%3000))
}

func name(at int) string { return fmt.Sprintf("{%s}%s%d", tags[at%len(tags)], prefix, at) }

func pair(at int) (string, string) { return name(at) + "a", name(at) + "b" }

func (w *writer) read(at int) (string, error) {
	switch at % 4 {
	case 0, 1:
		value, err := w.client.Get(ctx, name(at)).Result()
		if errors.Is(err, redis.Nil) {
			return absent, nil
		}
		return value, err
	case 2:
		fields, err := w.client.HGetAll(ctx, name(at)).Result()
		if err != nil || len(fields) == 0 {
			return absent, err
		}
		if len(fields) != 2 || fields["f"] != fields["g"] {
			fault("%s is torn: %v", name(at), len(fields))
		}
		return fields["f"], nil
	default:
		a, b := pair(at)
		values, err := w.client.MGet(ctx, a, b).Result()
		if err != nil {
			return absent, err
		}
		if values[0] != values[1] {
			fault("%s is torn: %.20v, %.20v", name(at), values[0], values[1])
		}
		if values[0] == nil {
			return absent, nil
		}
		return values[0].(string), nil
	}
}

// What it may be once it is done, and what does it.
func (w *writer) write(at int) ([]string, func() (string, error)) {
	value := absent
	switch {
	case at%4 == 1:
		wanted := []string{}
		for _, value := range w.models[at] {
			count, _ := strconv.Atoi(value)
			wanted = append(wanted, strconv.Itoa(count+1))
		}
		return wanted, func() (string, error) {
			count, err := w.client.Incr(ctx, name(at)).Result()
			return strconv.FormatInt(count, 10), err
		}
	case at%4 == 0 && w.random.Float64() < 0.2:
		return []string{absent}, func() (string, error) { return absent, w.client.Del(ctx, name(at)).Err() }
	}
	value = w.fresh()
	return []string{value}, func() (string, error) {
		switch at % 4 {
		case 0:
			return value, w.client.Set(ctx, name(at), value, 0).Err()
		case 2:
			return value, w.client.HSet(ctx, name(at), "f", value, "g", value).Err()
		default:
			a, b := pair(at)
			return value, w.client.MSet(ctx, a, value, b, value).Err()
		}
	}
}

func (w *writer) work() {
	at := w.random.Intn(keys)
	if w.random.Float64() < 0.5 {
		w.change(at)
		return
	}
	w.operations++
	if got, err := w.read(at); err != nil {
		w.errors++
	} else {
		w.expect(at, got)
	}
}

func (w *writer) change(at int) {
	w.operations++
	wanted, write := w.write(at)
	got, err := write()
	var answered redis.Error
	switch {
	case err == nil:
		if !slices.Contains(wanted, got) {
			fault("INCR %s is %s, not of %v", name(at), got, wanted)
		}
		w.models[at] = []string{got}
	case errors.As(err, &answered):
		w.errors++
	default:
		w.errors++
		w.models[at] = append(slices.Clone(w.models[at]), wanted...)
	}
}

func (w *writer) expect(at int, got string) {
	if !slices.Contains(w.models[at], got) {
		wanted := []string{}
		for _, value := range w.models[at] {
			wanted = append(wanted, short(value))
		}
		fault("%s is %q, not of %q", name(at), short(got), wanted)
	}
	w.models[at] = []string{got}
}

func (w *writer) check() {
	there := 0
	for at := range keys {
		got, err := w.read(at)
		for count := 1; err != nil; count++ {
			if count == tries {
				fault("%s cannot be read: %v", name(at), err)
			}
			if count == triesOfClient {
				w.renew(err)
			}
			time.Sleep(100 * time.Millisecond)
			got, err = w.read(at)
		}
		w.expect(at, got)
		switch {
		case got == absent:
		case at%4 == 3:
			there += 2
		default:
			there++
		}
	}
	fmt.Printf("checked %d %d %d %d\n", w.operations, w.errors, there, w.renewed)
}

func main() {
	w := &writer{
		client: connect(),
		random: rand.New(rand.NewSource(1)),
		models: make([][]string, keys),
	}
	for at := range w.models {
		w.models[at] = []string{absent}
	}
	if err := w.client.Ping(ctx).Err(); err != nil {
		fault("it cannot connect: %v", err)
	}
	for at := range keys {
		w.change(at)
	}
	fmt.Println("ready")
	lines := make(chan string)
	go func() {
		for scanner := bufio.NewScanner(os.Stdin); scanner.Scan(); {
			lines <- scanner.Text()
		}
		close(lines)
	}()
	turn := time.NewTicker(time.Second / time.Duration(pace))
	for {
		select {
		case line, more := <-lines:
			if !more || line == "end" {
				return
			}
			w.check()
			<-lines
		case <-turn.C:
			w.work()
		}
	}
}
