//go:build !linux

package main

import "errors"

func freeSpace(string) (int64, error) { return 0, errors.ErrUnsupported }
