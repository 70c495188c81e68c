// A stranger in Go: etcd's own concurrency package. Arguments: port, name, which (mutex or election), the length of its
// lease in seconds. See ../strangers.rs for the lines; an election also knows `leader` and `proclaim VALUE`.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

var ctx = context.Background()

type locks interface {
	take(value string) error
	tryTake() bool
	release() error
}

type mutex struct{ *concurrency.Mutex }

func (l mutex) take(string) error { return l.Lock(ctx) }
func (l mutex) tryTake() bool     { return l.TryLock(ctx) == nil }
func (l mutex) release() error    { return l.Unlock(ctx) }

type election struct{ *concurrency.Election }

func (l election) take(value string) error { return l.Campaign(ctx, value) }
func (l election) release() error          { return l.Resign(ctx) }

// It can not try: it gives up.
func (l election) tryTake() bool {
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	return l.Campaign(short, "tries") == nil
}

// Adds one to a counter in a file that nothing else protects, again and again.
func work(l locks, file string, total time.Duration) string {
	end := time.Now().Add(total)
	sections, longest := 0, time.Duration(0)
	for time.Now().Before(end) {
		asked := time.Now()
		must(l.take("works"))
		longest = max(longest, time.Since(asked))
		text, err := os.ReadFile(file)
		must(err)
		count, err := strconv.Atoi(strings.TrimSpace(string(text)))
		must(err)
		time.Sleep(2 * time.Millisecond)
		must(os.WriteFile(file, fmt.Appendf(nil, "%d\n", count+1), 0o644))
		must(l.release())
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
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:" + os.Args[1]}})
	must(err)
	seconds, err := strconv.Atoi(os.Args[4])
	must(err)
	session, err := concurrency.NewSession(client, concurrency.WithTTL(seconds))
	must(err)
	var l locks
	var e *concurrency.Election
	switch os.Args[3] {
	case "mutex":
		l = mutex{concurrency.NewMutex(session, os.Args[2])}
	case "election":
		e = concurrency.NewElection(session, os.Args[2])
		l = election{e}
	}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch words[0] {
		case "take":
			must(l.take(strings.Join(words[1:], " ")))
			fmt.Println("held")
		case "try":
			fmt.Println(map[bool]string{true: "held", false: "busy"}[l.tryTake()])
		case "release":
			must(l.release())
			fmt.Println("released")
		case "leader":
			answer, err := e.Leader(ctx)
			if errors.Is(err, concurrency.ErrElectionNoLeader) {
				fmt.Println("nobody")
				continue
			}
			must(err)
			fmt.Println(string(answer.Kvs[0].Value))
		case "proclaim":
			must(e.Proclaim(ctx, words[1]))
			fmt.Println("proclaimed")
		case "work":
			millis, err := strconv.Atoi(words[1])
			must(err)
			fmt.Println(work(l, words[2], time.Duration(millis)*time.Millisecond))
		}
	}
}
