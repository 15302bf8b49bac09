// A scheme of your own for Pathcast: `go-reno receive ADDRESS:PORT` and `go-reno send ADDRESS:PORT BYTES`.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

func main() {
	// either end is stopped by SIGTERM, and prints one line of JSON before it goes
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	if len(os.Args) < 3 {
		fail(fmt.Errorf("expected receive ADDRESS:PORT or send ADDRESS:PORT BYTES"))
	}
	var report map[string]any
	var err error
	if os.Args[1] == "receive" {
		report, err = receive(os.Args[2], stop)
	} else {
		report, err = send(os.Args[2], os.Args[3], stop)
	}
	if err != nil {
		fail(err)
	}
	fail(json.NewEncoder(os.Stdout).Encode(report))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// receive reads until SIGTERM.
func receive(address string, stop <-chan os.Signal) (map[string]any, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	fmt.Println("listening") // now the sender is started
	var received atomic.Int64
	began := time.Now()
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		portion := make([]byte, 1<<18)
		for err == nil {
			var size int
			size, err = connection.Read(portion)
			received.Add(int64(size))
		}
		_ = connection.Close() // by that the sender sees that everything has been read
	}()
	<-stop
	return map[string]any{"received_bytes": received.Load(), "seconds": time.Since(began).Seconds()}, nil
}

// send sends so many bytes, and waits until they have been read; 0: until SIGTERM.
func send(address, bytes string, stop <-chan os.Signal) (map[string]any, error) {
	most, err := strconv.ParseInt(bytes, 10, 64)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		failed := raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptString(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CONGESTION, "reno")
		})
		if err == nil {
			err = failed
		}
		return err
	}}
	dialed, err := dialer.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	connection := dialed.(*net.TCPConn)
	var sent atomic.Int64
	done := make(chan error, 1)
	go func() { done <- write(connection, most, &sent) }()
	select {
	case err = <-done:
	case <-stop:
		err = connection.SetLinger(0) // what waits in the kernel is not sent any more
	}
	if err != nil {
		return nil, err
	}
	controller, err := controllerOf(connection)
	return map[string]any{
		"controller": controller, // what is at work, not what was asked for
		"evidence":   "getsockopt(TCP_CONGESTION)",
		"sent_bytes": sent.Load(),
	}, err
}

func write(connection *net.TCPConn, most int64, sent *atomic.Int64) error {
	portion := make([]byte, 1<<16)
	for most == 0 || sent.Load() < most {
		size := int64(len(portion))
		if most > 0 {
			size = min(size, most-sent.Load())
		}
		written, err := connection.Write(portion[:size])
		sent.Add(int64(written))
		if err != nil {
			return err
		}
	}
	if err := connection.CloseWrite(); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, connection)
	return err
}

// controllerOf asks the kernel which congestion control the connection has.
func controllerOf(connection *net.TCPConn) (string, error) {
	raw, err := connection.SyscallConn()
	if err != nil {
		return "", err
	}
	name := make([]byte, 16)
	length := uint32(len(name))
	var failed syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, failed = syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, syscall.TCP_CONGESTION,
			uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&length)), 0)
	})
	if err == nil && failed != 0 {
		err = failed
	}
	for end, letter := range name {
		if letter == 0 {
			return string(name[:end]), err
		}
	}
	return string(name), err
}
