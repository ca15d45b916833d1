// Package interop runs servers and clients of other makers against the real sox-host: the reference servers of the Model Context Protocol as wrapped
// plugins and a server of the second TypeScript SDK beside them, and the official SDKs and the Inspector as clients. They are npm packages of pinned versions, so the tests have a build tag of their own
// and need Node: `make interop` installs the packages into node_modules beside this file and runs the tests.
//
// What each client was seen to do is the table in RESULTS.md, which the tests write again with -update and otherwise compare.
package interop
