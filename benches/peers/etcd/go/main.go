// Go's concurrency package, beside leasehold: `peer free ADDRESS TASKS MILLIS` or `peer one ADDRESS NAME MILLIS`.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func seconds(moment time.Time) float64 { return float64(moment.UnixNano()) / 1e9 }

// Says that it is ready, and waits for the word.
func ready() {
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
}

func main() {
	ctx := context.Background()
	kind, address, what := os.Args[1], os.Args[2], os.Args[3]
	millis, err := strconv.Atoi(os.Args[4])
	check(err)
	slice := time.Duration(millis) * time.Millisecond
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}})
	check(err)
	// One lease for all names, as we have.
	session, err := concurrency.NewSession(client, concurrency.WithTTL(30))
	check(err)
	if kind == "one" {
		mutex := concurrency.NewMutex(session, what)
		check(mutex.Lock(ctx))
		check(mutex.Unlock(ctx))
		ready()
		type section struct{ granted, released float64 }
		var sections []section
		for started := time.Now(); time.Since(started) < slice; {
			check(mutex.Lock(ctx))
			now := seconds(time.Now())
			sections = append(sections, section{now, now})
			check(mutex.Unlock(ctx))
		}
		for _, section := range sections {
			fmt.Printf("%.9f %.9f\n", section.granted, section.released)
		}
		check(session.Close())
		return
	}
	tasks, err := strconv.Atoi(what)
	check(err)
	var cycles atomic.Int64
	var all sync.WaitGroup
	ready()
	started := time.Now()
	for task := 0; task < tasks; task++ {
		all.Add(1)
		go func() {
			defer all.Done()
			mutex := concurrency.NewMutex(session, fmt.Sprintf("go/free%d", task))
			for time.Since(started) < slice {
				check(mutex.Lock(ctx))
				check(mutex.Unlock(ctx))
				cycles.Add(1)
			}
		}()
	}
	all.Wait()
	fmt.Printf("%f\n", float64(cycles.Load())/time.Since(started).Seconds())
	check(session.Close())
}
