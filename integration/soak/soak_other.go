//go:build !linux

package main

import "errors"

func soak(config) (*report, error) { return nil, errors.New("needs Linux") }
