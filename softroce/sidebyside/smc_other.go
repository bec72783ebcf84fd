//go:build !linux

package main

import "errors"

func enableSMC() error { return errors.ErrUnsupported }
