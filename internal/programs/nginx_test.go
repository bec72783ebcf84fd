package programs

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pageSizes are the files that nginx serves, each named by its size.
var pageSizes = []int{0, 1, 1 << 10, 1 << 20, 64 << 20}

const nginxConfig = `
daemon off;
master_process off;
pid %[1]s/nginx.pid;
error_log stderr crit;
events { worker_connections 512; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	keepalive_requests 1000000;
	server {
		listen 127.0.0.1:%[2]d;
		root %[1]s/files;
		location /zipped/ {
			alias %[1]s/files/;
			gzip on;
			gzip_min_length 1;
			gzip_types *;
		}
	}
}
`

// startNginx starts nginx with files of random bytes.
func startNginx(t *testing.T) (address string, files map[string][]byte) {
	t.Helper()
	program := need(t, "nginx", "nginx-light")
	a, port := unprivileged(t, "www-data"), freePort(t)
	dir := a.dir(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "files"), 0o755))
	files = map[string][]byte{}
	for i, size := range pageSizes {
		name := strconv.Itoa(size)
		files[name] = random(size, byte(i))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "files", name), files[name], 0o644))
	}
	config := filepath.Join(dir, "nginx.conf")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, nginxConfig, dir, port), 0o644))
	return a.serve(t, dir, port, syscall.SIGTERM, program, "-p", dir, "-e", "stderr", "-c", config), files
}

// TestNginxFiles fetches the files straight and through proxies.
func TestNginxFiles(t *testing.T) {
	direct, files := startNginx(t)
	through := behindProxies(t, direct)
	for _, base := range []string{"http://" + direct, "http://" + through} {
		transport := &http.Transport{DisableCompression: true}
		client := &http.Client{Transport: transport, Timeout: patience}
		get := func(path string, header ...string) (*http.Response, []byte) {
			req, err := http.NewRequest(http.MethodGet, base+path, nil)
			require.NoError(t, err)
			for i := 0; i < len(header); i += 2 {
				req.Header.Set(header[i], header[i+1])
			}
			resp, err := client.Do(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return resp, body
		}
		for name, want := range files {
			resp, got := get("/" + name)
			assert.Equal(t, http.StatusOK, resp.StatusCode)
			assert.EqualValues(t, len(want), resp.ContentLength)
			assert.Equal(t, sha256.Sum256(want), sha256.Sum256(got), "%s%s", base, name)

			// A page whose length nginx does not know before it is zipped is chunked.
			resp, got = get("/zipped/"+name, "Accept-Encoding", "gzip")
			assert.Equal(t, http.StatusOK, resp.StatusCode)
			if len(want) > 0 {
				assert.Equal(t, []string{"chunked"}, resp.TransferEncoding, name)
				zipped, err := gzip.NewReader(bytes.NewReader(got))
				require.NoError(t, err)
				got, err = io.ReadAll(zipped)
				require.NoError(t, err)
			}
			assert.Equal(t, sha256.Sum256(want), sha256.Sum256(got), "%s/zipped/%s", base, name)
		}

		large := files[strconv.Itoa(64<<20)]
		for _, r := range [][2]int{{0, 0}, {1, 1000}, {1<<20 - 1, 5 << 20}, {64<<20 - 1, 64<<20 - 1}} {
			resp, got := get(fmt.Sprint("/", len(large)), "Range", fmt.Sprintf("bytes=%d-%d", r[0], r[1]))
			assert.Equal(t, http.StatusPartialContent, resp.StatusCode)
			assert.Equal(t, fmt.Sprintf("bytes %d-%d/%d", r[0], r[1], len(large)), resp.Header.Get("Content-Range"))
			assert.Equal(t, sha256.Sum256(large[r[0]:r[1]+1]), sha256.Sum256(got))
		}
		resp, _ := get("/1024", "Range", "bytes=2000-")
		assert.Equal(t, http.StatusRequestedRangeNotSatisfiable, resp.StatusCode)
		resp, _ = get("/nothing")
		assert.Equal(t, http.StatusNotFound, resp.StatusCode)
		transport.CloseIdleConnections()
	}
}

// TestNginxKeepAlive sends requests on one connection, one after the other and
// before their answers, and says that the last is the last.
func TestNginxKeepAlive(t *testing.T) {
	direct, files := startNginx(t)
	conn, err := net.Dial("tcp", behindProxies(t, direct))
	require.NoError(t, err)
	defer conn.Close()
	answers := bufio.NewReader(conn)
	expect := func() {
		resp, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, files["1024"], got)
	}
	const request = "GET /1024 HTTP/1.1\r\nHost: nginx\r\n"
	for range 100 {
		_, err := io.WriteString(conn, request+"\r\n")
		require.NoError(t, err)
		expect()
	}
	_, err = io.WriteString(conn, strings.Repeat(request+"\r\n", 100)+request+"Connection: close\r\n\r\n")
	require.NoError(t, err)
	for range 101 {
		expect()
	}
	_, err = answers.ReadByte()
	assert.ErrorIs(t, err, io.EOF, "the server's end of the connection passes through")
}

var wrkRequests = regexp.MustCompile(`(?m)^ +(\d+) requests in `)

// TestWrk loads nginx straight and through proxies.
func TestWrk(t *testing.T) {
	wrk := need(t, "wrk", "wrk")
	direct, _ := startNginx(t)
	through := behindProxies(t, direct)
	for _, address := range []string{direct, through} {
		for _, page := range []string{"1024", "1048576"} {
			for _, header := range []string{"Connection: keep-alive", "Connection: close"} {
				out := output(t, wrk, "-t", "2", "-c", "32", "-d", "1s", "--timeout", "30s", "-H", header, "http://"+address+"/"+page)
				m := wrkRequests.FindStringSubmatch(out)
				require.NotNil(t, m, out)
				n, err := strconv.Atoi(m[1])
				require.NoError(t, err)
				assert.Positive(t, n, out)
				assert.NotContains(t, out, "Socket errors")
				assert.NotContains(t, out, "Non-2xx")
			}
		}
	}
}
