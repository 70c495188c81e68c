// Strangers in Go: redsync and bsm/redislock. Arguments: ports, key, which. See ../strangers.rs for the lines.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

type locks interface {
	take(lease time.Duration) error
	tryTake(lease time.Duration) bool
	release() bool
}

// redsync with its own delays, 50 to 250 ms, and without its limit of 32 tries.
type redsyncLocks struct {
	redsync *redsync.Redsync
	key     string
	mutex   *redsync.Mutex
}

func (l *redsyncLocks) take(lease time.Duration) error {
	l.mutex = l.redsync.NewMutex(l.key, redsync.WithExpiry(lease), redsync.WithTries(1<<30))
	return l.mutex.Lock()
}

func (l *redsyncLocks) tryTake(lease time.Duration) bool {
	l.mutex = l.redsync.NewMutex(l.key, redsync.WithExpiry(lease))
	return l.mutex.TryLock() == nil
}

func (l *redsyncLocks) release() bool {
	ok, err := l.mutex.Unlock()
	return ok && err == nil
}

// redislock, which does not try again unless it is told how.
type redislockLocks struct {
	client *redislock.Client
	key    string
	lock   *redislock.Lock
}

func (l *redislockLocks) take(lease time.Duration) (err error) {
	// Without a deadline it would give up after a lease.
	long, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
	l.lock, err = l.client.Obtain(long, l.key, lease, options)
	return err
}

func (l *redislockLocks) tryTake(lease time.Duration) bool {
	lock, err := l.client.Obtain(ctx, l.key, lease, nil)
	if err == nil {
		l.lock = lock
	}
	return err == nil
}

func (l *redislockLocks) release() bool {
	return l.lock.Release(ctx) == nil
}

// Adds one to a counter that nothing else protects, again and again.
func work(client *redis.Client, l locks, total, lease time.Duration) string {
	end := time.Now().Add(total)
	sections, longest := 0, time.Duration(0)
	for time.Now().Before(end) {
		asked := time.Now()
		must(l.take(lease))
		longest = max(longest, time.Since(asked))
		count, err := client.Get(ctx, "counter").Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			must(err)
		}
		time.Sleep(2 * time.Millisecond)
		must(client.Set(ctx, "counter", count+1, 0).Err())
		if !l.release() {
			must(errors.New("lost the lock while it was held"))
		}
		sections++
	}
	return fmt.Sprintf("worked %d %d", sections, longest.Milliseconds())
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	var clients []*redis.Client
	var pools []redsyncredis.Pool
	for _, port := range strings.Split(os.Args[1], ",") {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
		must(client.Ping(ctx).Err())
		clients = append(clients, client)
		pools = append(pools, goredis.NewPool(client))
	}
	client := clients[0]
	var l locks
	switch os.Args[3] {
	case "redsync":
		l = &redsyncLocks{redsync: redsync.New(pools...), key: os.Args[2]}
	case "redislock":
		l = &redislockLocks{client: redislock.New(client), key: os.Args[2]}
	}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var word string
		var first, second int
		// A line has as many numbers as its word wants.
		_, _ = fmt.Sscan(lines.Text(), &word, &first, &second)
		lease := time.Duration(first) * time.Millisecond
		switch word {
		case "take":
			must(l.take(lease))
			fmt.Println("held")
		case "try":
			fmt.Println(map[bool]string{true: "held", false: "busy"}[l.tryTake(lease)])
		case "release":
			fmt.Println(map[bool]string{true: "released", false: "gone"}[l.release()])
		case "work":
			fmt.Println(work(client, l, lease, time.Duration(second)*time.Millisecond))
		}
	}
}
