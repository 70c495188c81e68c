// redis_rate with its default settings, one caller.
//
// The argument is a PORT. It says "ready". For each line "MILLISECONDS" it asks again and again for
// that long, and answers with the number of decisions.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

func main() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1]})
	limiter := redis_rate.NewLimiter(client)
	limit := redis_rate.Limit{Rate: 1_000_000, Burst: 1_000_000, Period: time.Second}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		milliseconds, err := strconv.Atoi(lines.Text())
		if err != nil {
			panic(err)
		}
		decisions := 0
		for end := time.Now().Add(time.Duration(milliseconds) * time.Millisecond); time.Now().Before(end); decisions++ {
			if answer, err := limiter.Allow(context.Background(), "user7", limit); err != nil || answer.Allowed != 1 {
				panic(fmt.Sprint(answer, err))
			}
		}
		fmt.Println(decisions)
	}
}
