// Package front reads and writes client bytes, and nothing else does: stdout carries JSON-RPC lines only.
package front
