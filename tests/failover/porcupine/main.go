// A judge of histories: is there one order of all operations that explains every answer?
//
// Standard input has one operation a line, as history.py writes it. Each register is judged alone. Standard output gets
// one JSON object with the counts and the names of the registers whose histories have no explanation.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const unknown = -1

type operation struct {
	Register string `json:"register"`
	Kind     string `json:"kind"`
	Client   int    `json:"client"`
	Call     int64  `json:"call"`
	Back     int64  `json:"back"`
	Value    string `json:"value"`
	Expect   int64  `json:"expect"`
	Seq      int64  `json:"seq"`
	Done     bool   `json:"done"`
	IsDense  bool   `json:"is_dense"`
}

// What a register holds: the sequence of its newest message, 0 for none, and that message.
type register struct {
	seq   int64
	value string
}

func step(state, input, _ interface{}) (bool, interface{}) {
	now, op := state.(register), input.(*operation)
	switch {
	case op.Kind == "read":
		return op.Seq == now.seq && (op.IsDense || op.Value == now.value), now
	case !op.Done: // refused, with the sequence that the server had instead
		return op.Seq == now.seq && op.Expect != now.seq, now
	case op.Expect != unknown && op.Expect != now.seq:
		return false, now
	case op.IsDense && op.Seq != now.seq+1, op.Seq <= now.seq:
		return false, now
	}
	return true, register{op.Seq, op.Value}
}

func describe(input, _ interface{}) string {
	op := input.(*operation)
	if op.Kind == "read" {
		return fmt.Sprintf("read %d %q", op.Seq, op.Value)
	}
	if !op.Done {
		return fmt.Sprintf("write %q if %d: refused, is %d", op.Value, op.Expect, op.Seq)
	}
	return fmt.Sprintf("write %q if %d: stored as %d", op.Value, op.Expect, op.Seq)
}

var model = porcupine.Model{
	Init:              func() interface{} { return register{} },
	Step:              step,
	DescribeOperation: describe,
	DescribeState:     func(state interface{}) string { return fmt.Sprintf("%v", state) },
}

// read returns the operations of standard input by register.
func read() (map[string][]porcupine.Operation, int, error) {
	histories, count := map[string][]porcupine.Operation{}, 0
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<16), 1<<20)
	for lines.Scan() {
		op := new(operation)
		if err := json.Unmarshal(lines.Bytes(), op); err != nil {
			return nil, 0, err
		}
		count++
		histories[op.Register] = append(histories[op.Register], porcupine.Operation{
			ClientId: op.Client % 1000, Input: op, Call: op.Call, Return: op.Back,
		})
	}
	return histories, count, lines.Err()
}

// judge checks one register; an illegal history is drawn into a file of the directory, if one is given.
func judge(name string, history []porcupine.Operation, patience time.Duration, directory string) porcupine.CheckResult {
	result := porcupine.CheckOperationsTimeout(model, history, patience)
	if result == porcupine.Illegal && directory != "" {
		_, info := porcupine.CheckOperationsVerbose(model, history, patience)
		_ = porcupine.VisualizePath(model, info, filepath.Join(directory, name+".html"))
	}
	return result
}

func main() {
	histories, count, err := read()
	if err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(2)
	}
	directory := ""
	if len(os.Args) > 1 {
		directory = os.Args[1]
	}
	started := time.Now()
	illegal, undecided := []string{}, []string{}
	for name, history := range histories {
		switch judge(name, history, time.Minute, directory) {
		case porcupine.Illegal:
			illegal = append(illegal, name)
		case porcupine.Unknown:
			undecided = append(undecided, name)
		}
	}
	sort.Strings(illegal)
	sort.Strings(undecided)
	_ = json.NewEncoder(os.Stdout).Encode(map[string]interface{}{
		"operations": count, "registers": len(histories), "illegal": illegal, "undecided": undecided,
		"seconds": time.Since(started).Seconds(),
	})
}
