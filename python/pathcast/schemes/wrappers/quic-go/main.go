// A bulk sender and receiver over quic-go: `quic-go receive|send ADDRESS:PORT [--bytes N]`.
package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/signal"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
)

const protocol = "pathcast"

// windows that no path of a few hundred milliseconds and a gigabit fills
var config = &quic.Config{
	InitialStreamReceiveWindow:     16 << 20,
	MaxStreamReceiveWindow:         64 << 20,
	InitialConnectionReceiveWindow: 16 << 20,
	MaxConnectionReceiveWindow:     64 << 20,
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "quic-go:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) < 2 {
		return fmt.Errorf("got %d arguments; expected receive|send ADDRESS:PORT [--bytes N]", len(arguments))
	}
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if arguments[0] == "receive" {
		return receive(stopped, arguments[1])
	}
	var most int64
	if len(arguments) == 4 && arguments[2] == "--bytes" {
		var err error
		if most, err = strconv.ParseInt(arguments[3], 10, 64); err != nil || most < 0 {
			return fmt.Errorf("--bytes is %q; expected a number of bytes", arguments[3])
		}
	}
	return send(stopped, arguments[1], most)
}

func report(values map[string]any) error {
	return json.NewEncoder(os.Stdout).Encode(values)
}

// certificate makes one for this run, which only this run's sender sees.
func certificate() (tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	made, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	return tls.Certificate{Certificate: [][]byte{made}, PrivateKey: private}, err
}

func receive(stopped context.Context, address string) error {
	own, err := certificate()
	if err != nil {
		return err
	}
	listener, err := quic.ListenAddr(address, &tls.Config{Certificates: []tls.Certificate{own}, NextProtos: []string{protocol}}, config)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	var received, nanoseconds atomic.Int64
	go func() {
		for {
			connection, err := listener.Accept(stopped)
			if err != nil {
				return
			}
			go func() {
				stream, err := connection.AcceptStream(stopped)
				if err != nil {
					return
				}
				began := time.Now()
				portion := make([]byte, 1<<18)
				for {
					size, err := stream.Read(portion)
					received.Add(int64(size))
					nanoseconds.Store(int64(time.Since(began)))
					if err == io.EOF {
						_, _ = stream.Write([]byte{1})
						_ = stream.Close()
					}
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	<-stopped.Done()
	return report(map[string]any{"received_bytes": received.Load(), "seconds": float64(nanoseconds.Load()) * 1e-9})
}

func send(stopped context.Context, address string, most int64) error {
	// the receiver's certificate is made for the run: there is nothing to check it against
	client := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}
	connection, err := quic.DialAddr(stopped, address, client, config)
	if err != nil {
		return err
	}
	stream, err := connection.OpenStreamSync(stopped)
	if err != nil {
		return err
	}
	var sent atomic.Int64
	done := make(chan error, 1)
	go func() { done <- write(stream, most, &sent) }()
	var failed error
	select {
	case <-stopped.Done():
	case failed = <-done:
	}
	controller, evidence := controllerOf(connection)
	_ = connection.CloseWithError(0, "")
	if failed != nil {
		return failed
	}
	return report(map[string]any{"controller": controller, "evidence": evidence, "sent_bytes": sent.Load()})
}

// write sends most bytes, 0: without end, and waits until the receiver has them.
func write(stream *quic.Stream, most int64, sent *atomic.Int64) error {
	portion := make([]byte, 1<<16)
	for most == 0 || sent.Load() < most {
		size := int64(len(portion))
		if most > 0 {
			size = min(size, most-sent.Load())
		}
		written, err := stream.Write(portion[:size])
		sent.Add(int64(written))
		if err != nil {
			return err
		}
	}
	if err := stream.Close(); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, stream)
	return err
}

// controllerOf reads the type of the connection's congestion controller: quic-go has no other word for it.
func controllerOf(connection *quic.Conn) (string, string) {
	value := reflect.ValueOf(connection)
	for _, name := range []string{"sentPacketHandler", "congestion"} {
		for value.Kind() == reflect.Pointer || value.Kind() == reflect.Interface {
			value = value.Elem()
		}
		if value.Kind() != reflect.Struct {
			return "unknown", "no field " + name
		}
		if value = value.FieldByName(name); !value.IsValid() {
			return "unknown", "no field " + name
		}
	}
	for value.Kind() == reflect.Interface {
		value = value.Elem()
	}
	kind := value.Type().String()
	controller := strings.TrimSuffix(kind[strings.LastIndex(kind, ".")+1:], "Sender")
	evidence := "type of the connection's congestion controller: " + kind
	if reno := value.Elem().FieldByName("reno"); reno.IsValid() && reno.Kind() == reflect.Bool {
		evidence += fmt.Sprintf(", its field reno is %t", reno.Bool())
		if reno.Bool() {
			controller = "reno"
		}
	}
	return controller, evidence
}
