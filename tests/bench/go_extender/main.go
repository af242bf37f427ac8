// A minimal scheduler extender in Go, the yardstick of `python -m tests.bench filter`.
//
// It does the JSON work that cohort-extender does and no more: decode the same fields into typed structs, look every
// name up in a table of all nodes, split them, encode the same reply with its length. Its port goes to standard output.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
)

type pod struct {
	Metadata struct {
		UID         string            `json:"uid"`
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		NodeSelector map[string]string `json:"nodeSelector"`
	} `json:"spec"`
}

type arguments struct {
	Pod       *pod
	NodeNames *[]string
}

type result struct {
	Nodes                      *struct{}
	NodeNames                  *[]string
	FailedNodes                map[string]string
	FailedAndUnresolvableNodes map[string]string
	Error                      string
}

const (
	bodyMax     = 8 << 20
	wrongFlavor = "the node is not of the admitted flavor"
)

// table says of every node whether it is of the flavor.
type table map[string]bool

func (known table) filter(writer http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(writer, request.Body, bodyMax))
	if err != nil {
		http.Error(writer, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	var asked arguments
	if err := json.Unmarshal(body, &asked); err != nil || asked.Pod == nil || asked.NodeNames == nil {
		http.Error(writer, "not a question of kube-scheduler", http.StatusBadRequest)
		return
	}
	names := *asked.NodeNames
	fit := make([]string, 0, len(names))
	unfit := map[string]string{}
	for _, name := range names {
		if known[name] {
			fit = append(fit, name)
		} else {
			unfit[name] = wrongFlavor
		}
	}
	reply, err := json.Marshal(result{
		NodeNames: &fit, FailedNodes: map[string]string{}, FailedAndUnresolvableNodes: unfit,
	})
	if err != nil {
		http.Error(writer, err.Error(), http.StatusInternalServerError)
		return
	}
	header := writer.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(reply)))
	_, _ = writer.Write(reply)
}

// main reads the table, a JSON object of name to bool, from standard input.
func main() {
	var known table
	if err := json.NewDecoder(os.Stdin).Decode(&known); err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	http.HandleFunc("POST /scheduler/filter", known.filter)
	log.Fatal(http.Serve(listener, nil))
}
