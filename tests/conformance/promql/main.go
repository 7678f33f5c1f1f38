// Evaluates PromQL expressions over pages in the Prometheus text format, as Prometheus would have scraped them.
//
//	promql STEP_SECONDS PAGE... < EXPRESSIONS
//
// For each line of the input it prints a line of JSON: the series that the expression returns at the time of the last
// page, or the error.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb"
)

type found struct {
	Series int    `json:"series"`
	Error  string `json:"error"`
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// load appends the samples of a page, scraped at a time in milliseconds.
func load(db *tsdb.DB, path string, at int64) {
	data, err := os.ReadFile(path)
	check(err)
	page, err := textparse.New(data, "text/plain; version=0.0.4", "", false, false, false, labels.NewSymbolTable())
	check(err)
	appender := db.Appender(context.Background())
	for {
		entry, err := page.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		check(err)
		if entry == textparse.EntrySeries {
			var given labels.Labels
			page.Labels(&given)
			_, _, value := page.Series()
			scraped := labels.NewBuilder(given).Set("job", "nats").Set("instance", "localhost:8222").Labels()
			_, err = appender.Append(0, scraped, at, value)
			check(err)
		}
	}
	check(appender.Commit())
}

func evaluate(engine *promql.Engine, db *tsdb.DB, expression string, at time.Time) found {
	query, err := engine.NewInstantQuery(context.Background(), db, nil, expression, at)
	if err != nil {
		return found{Error: err.Error()}
	}
	result := query.Exec(context.Background())
	if result.Err != nil {
		return found{Error: result.Err.Error()}
	}
	vector, err := result.Vector()
	if err != nil {
		return found{Error: err.Error()}
	}
	return found{Series: len(vector)}
}

func main() {
	step, err := strconv.Atoi(os.Args[1])
	check(err)
	directory, err := os.MkdirTemp("", "promql")
	check(err)
	defer os.RemoveAll(directory)
	db, err := tsdb.Open(directory, nil, nil, tsdb.DefaultOptions(), nil)
	check(err)
	at := time.Unix(1_700_000_000, 0)
	for _, path := range os.Args[2:] {
		at = at.Add(time.Duration(step) * time.Second)
		load(db, path, at.UnixMilli())
	}
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
	})
	lines, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		check(out.Encode(evaluate(engine, db, lines.Text(), at)))
	}
	check(lines.Err())
	check(db.Close())
}
