package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/stdtest/over"
)

func reportOf(dialled int, verdict map[string]string) *report {
	return &report{verdict: verdict, events: over.Events{Dialled: dialled}}
}

var judged = &selection{
	pkg: "p", least: 10,
	adapt:  []entry{{"TestType", "asserts a type"}},
	except: []entry{{"TestSocket", "wants a socket"}},
}

// good is a result without fault.
func good() *result {
	return &result{
		plain: reportOf(8, map[string]string{"TestA": "pass", "TestB": "skip"}),
		alone: map[string]*report{
			"TestType":   reportOf(1, map[string]string{"TestType": "fail"}),
			"TestSocket": reportOf(1, map[string]string{"TestSocket": "run"}),
		},
		adapted: reportOf(2, map[string]string{"TestType": "pass"}),
	}
}

func TestJudge(t *testing.T) {
	require.Empty(t, judged.judge(good()))
	for want, change := range map[string]func(*result){
		"TestA fails": func(r *result) { r.plain.verdict["TestA"] = "fail" },
		"TestType passes, although tests.txt says: asserts a type":   func(r *result) { r.alone["TestType"].verdict["TestType"] = "pass" },
		"TestSocket passes, although tests.txt says: wants a socket": func(r *result) { r.alone["TestSocket"].verdict["TestSocket"] = "pass" },
		"TestSocket is listed, but there is no such test":            func(r *result) { r.alone["TestSocket"].verdict = nil },
		"TestType fails": func(r *result) { r.adapted.verdict["TestType"] = "fail" },
		`TestType should run with its types exchanged, but: "skip"`: func(r *result) { r.adapted.verdict["TestType"] = "skip" },
		"9 connections of rdmanet were dialled, fewer than the 10":  func(r *result) { r.plain.events.Dialled = 7 },
	} {
		res := good()
		change(res)
		got := judged.judge(res)
		if assert.Len(t, got, 1, want) {
			assert.Contains(t, got[0], want)
		}
	}
}

// TestJudgeChance: a test that may pass as it is has to pass with its types exchanged.
func TestJudgeChance(t *testing.T) {
	sel := *judged
	sel.chance = []string{"TestType"}
	res := good()
	res.alone["TestType"].verdict["TestType"] = "pass"
	require.Empty(t, sel.judge(res))
	res.adapted.verdict["TestType"] = "fail"
	require.NotEmpty(t, sel.judge(res))
}

// TestJudgeOtherFunctions: a test that uses DialTCP itself passes, over TCP.
func TestJudgeOtherFunctions(t *testing.T) {
	res := good()
	res.alone["TestType"] = reportOf(0, map[string]string{"TestType": "pass"})
	require.Empty(t, judged.judge(res))
}

// TestJudgeSkipped: what skips as it is may skip with its types exchanged.
func TestJudgeSkipped(t *testing.T) {
	res := good()
	res.alone["TestType"].verdict["TestType"] = "skip"
	res.adapted.verdict["TestType"] = "skip"
	require.Empty(t, judged.judge(res))
}

// TestJudgeNothingReplaced: over TCP nothing is counted, and what is listed passes.
func TestJudgeNothingReplaced(t *testing.T) {
	res := good()
	res.alone, res.plain.events, res.adapted.events = nil, over.Events{}, over.Events{}
	require.Empty(t, judged.judge(res))
}

func TestSkipped(t *testing.T) {
	p := &goPackage{Dir: t.TempDir(), TestGoFiles: []string{"a_test.go", "b_test.go"}}
	for name, src := range map[string]string{
		"a_test.go": "package p\nfunc TestA() {}\nfunc helper() {}\n",
		"b_test.go": "package p\nfunc TestB() {}\nfunc ExampleB() {}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(p.Dir, name), []byte(src), 0o600))
	}
	got, err := (&selection{pkg: "p", except: []entry{{"TestA/sub", "no"}}, out: []entry{{"b_test.go", "no"}}}).skipped(p)
	require.NoError(t, err)
	require.Equal(t, []string{"TestA/sub", "TestB", "ExampleB"}, got)

	_, err = (&selection{pkg: "p", out: []entry{{"c_test.go", "no"}}}).skipped(p)
	require.ErrorContains(t, err, "p has no file c_test.go")
	for _, sel := range []*selection{
		{pkg: "p", adapt: []entry{{"TestC", "no"}}}, {pkg: "p", except: []entry{{"TestC/x", "no"}}}, {pkg: "p", out: []entry{{"TestC", "no"}}},
	} {
		_, err = sel.skipped(p)
		require.ErrorContains(t, err, "p has no test TestC")
	}
}
