package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBadArguments(t *testing.T) {
	_, err := (&settings{network: "tcp"}).run("", false, nil)
	assert.ErrorContains(t, err, `network "tcp"`)
	_, err = (&settings{network: "rdma", race: true}).run(t.TempDir(), false, []string{"net/nothing"})
	assert.ErrorContains(t, err, "no package net/nothing")
}
