package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/sox-host/sox-host/host/internal/nearest"
)

// decodeStrict decodes one JSON object into a struct. Unknown and repeated
// members, other types, other case and trailing data are errors that name the
// member, and of an unknown one the known one that is near, of another type what to
// write. What is no JSON is named with its line and column. A null is the zero value.
//
// encoding/json takes members in any case, and repeated ones. The decoder that
// comes with jsontext is as strict as this one and was used here; it made the
// host half a megabyte larger for two kinds of small files. The tests compare.
func decodeStrict(r io.Reader, into any) error {
	data, err := io.ReadAll(io.LimitReader(r, maxSmallFileBytes+1))
	if err != nil {
		return cause(err)
	}
	if len(data) > maxSmallFileBytes {
		return fmt.Errorf("longer than %d bytes", maxSmallFileBytes)
	}
	if jsontext.Value(data).Kind() != '{' {
		return errors.New("not a JSON object, which begins with {")
	}
	d := strictDecoder{jsontext.NewDecoder(bytes.NewReader(data))}
	if err := d.value(reflect.ValueOf(into).Elem()); err != nil {
		return located(data, err)
	}
	if len(bytes.TrimLeft(data[d.InputOffset():], " \t\r\n")) > 0 {
		whole := jsontext.Value(bytes.Clone(data))
		return located(data, whole.Compact()) // whose error says where the object ended
	}
	return nil
}

// syntaxError is a place where a file is no JSON. It unwraps to the decoder's error.
type syntaxError struct {
	line, column int // from 1; a column is a character
	what         string
	err          error
}

func (e *syntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.line, e.column, e.what)
}

func (e *syntaxError) Unwrap() error { return e.err }

// located turns what the decoder says of data that is no JSON into what a person can find and mend. Other errors
// stay as they are.
func located(data []byte, err error) error {
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return err
	}
	before := data[:min(int(syntax.ByteOffset), len(data))]
	ended := errors.Is(err, io.ErrUnexpectedEOF)
	if ended {
		before = bytes.TrimRight(before, " \t\r\n")
	}
	e := &syntaxError{
		line:   1 + bytes.Count(before, []byte("\n")),
		column: 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]),
		err:    err,
	}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		e.what = fmt.Sprintf("member %q is there twice: take one out", dotted(syntax.JSONPointer))
	case ended:
		e.what = `the file ends in the middle of its object: add the }, ] or " that is missing`
	case jsontext.Value(before).IsValid():
		e.what = "there is more behind the object, and JSON has no comments: take it out"
	default:
		e.what = fmt.Sprintf("%v: JSON has double quotes around names and texts, a comma between two members, none before } or ], and no comments", syntax.Err)
	}
	return e
}

// strictDecoder fills in strings, booleans, integers, and structs, slices and
// maps by string of them. The members of an embedded struct are those of the
// struct around it.
type strictDecoder struct{ *jsontext.Decoder }

func (d strictDecoder) value(into reflect.Value) error {
	kind := d.PeekKind()
	switch want := into.Kind(); {
	case kind == 'n':
		into.SetZero()
		return d.SkipValue()
	case want == reflect.Struct && kind == '{':
		return d.members(into)
	case want == reflect.Map && kind == '{':
		return d.entries(into)
	case want == reflect.Slice && kind == '[':
		return d.elements(into)
	case want == reflect.String && kind == '"', want == reflect.Bool && (kind == 't' || kind == 'f'),
		want == reflect.Int && kind == '0':
		return d.scalar(into)
	}
	if err := d.SkipValue(); err != nil {
		return err // it is no JSON, whatever else it is
	}
	return d.mismatch(kind, into.Type())
}

// members reads an object into a struct.
func (d strictDecoder) members(into reflect.Value) error {
	return d.object(func(name string) error {
		field := memberOf(into, name)
		if !field.IsValid() {
			return d.unknown(into.Type())
		}
		return d.value(field)
	})
}

// entries reads an object into a map.
func (d strictDecoder) entries(into reflect.Value) error {
	into.Set(reflect.MakeMap(into.Type()))
	return d.object(func(name string) error {
		entry := reflect.New(into.Type().Elem()).Elem()
		if err := d.value(entry); err != nil {
			return err
		}
		into.SetMapIndex(reflect.ValueOf(name), entry)
		return nil
	})
}

// object calls read at the value of every member.
func (d strictDecoder) object(read func(name string) error) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		if err := read(name.String()); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

// elements reads an array into a slice.
func (d strictDecoder) elements(into reflect.Value) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	into.Set(reflect.MakeSlice(into.Type(), 0, 0))
	for d.PeekKind() != ']' {
		element := reflect.New(into.Type().Elem()).Elem()
		if err := d.value(element); err != nil {
			return err
		}
		into.Set(reflect.Append(into, element))
	}
	_, err := d.ReadToken()
	return err
}

func (d strictDecoder) scalar(into reflect.Value) error {
	token, err := d.ReadToken()
	if err != nil {
		return err
	}
	switch token.Kind() {
	case '"':
		into.SetString(token.String())
	case '0':
		n, err := strconv.ParseInt(token.String(), 10, into.Type().Bits())
		if err != nil {
			return d.mismatch(token.Kind(), into.Type()) // a fraction, or too large
		}
		into.SetInt(n)
	default:
		into.SetBool(token.Bool())
	}
	return nil
}

// unknown refuses the member of a struct that was read last. It names the one that
// was probably meant.
func (d strictDecoder) unknown(of reflect.Type) error {
	at := d.StackPointer()
	meant := nearest.Word(at.LastToken(), memberNames(of))
	if meant == "" {
		return fmt.Errorf("unknown member %q", dotted(at))
	}
	return fmt.Errorf("unknown member %q: did you mean %q?", dotted(at), dotted(at.Parent().AppendToken(meant)))
}

// mismatch refuses the value that was read last, and says what to write.
func (d strictDecoder) mismatch(kind jsontext.Kind, want reflect.Type) error {
	return fmt.Errorf("member %q cannot be a JSON %s: write %s", d.member(), kindText(kind), example(want))
}

// example says in words what a member of a type looks like.
func example(of reflect.Type) string {
	switch {
	case of == reflect.TypeFor[durationText]():
		return `a duration such as "30s"`
	case of.Kind() == reflect.Bool:
		return "true or false"
	case of.Kind() == reflect.Int:
		return "a whole number"
	case of.Kind() == reflect.Slice:
		return `a list such as ["a", "b"]`
	case of.Kind() == reflect.String:
		return `a text in quotes, "..."`
	}
	return `an object, {"NAME": ...}`
}

// member is the path of what was read last.
func (d strictDecoder) member() string { return dotted(d.StackPointer()) }

// dotted is a path as messages have it, as in "tools.allow.0".
func dotted(at jsontext.Pointer) string {
	return clip(strings.ReplaceAll(strings.TrimPrefix(string(at), "/"), "/", "."))
}

// memberOf returns the field of a struct that has the name in its tag, or the
// zero Value.
func memberOf(into reflect.Value, name string) reflect.Value {
	for i := range into.NumField() {
		field := into.Type().Field(i)
		if field.Anonymous {
			if inner := memberOf(into.Field(i), name); inner.IsValid() {
				return inner
			}
			continue
		}
		if tag := tagOf(field); tag == name && tag != "" {
			return into.Field(i)
		}
	}
	return reflect.Value{}
}

// memberNames are the names by which memberOf finds the fields of a struct.
func memberNames(of reflect.Type) (names []string) {
	for i := range of.NumField() {
		field := of.Field(i)
		if field.Anonymous {
			names = append(names, memberNames(field.Type)...)
		} else if tag := tagOf(field); tag != "" {
			names = append(names, tag)
		}
	}
	return names
}

// tagOf is the name of a field's member, "" if it has none.
func tagOf(field reflect.StructField) string {
	tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return tag
}

func kindText(kind jsontext.Kind) string {
	switch kind {
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "boolean"
	}
	return kind.String()
}
