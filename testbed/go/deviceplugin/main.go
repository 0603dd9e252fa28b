// Command deviceplugin offers GPUs that are not there: a kubelet device plugin whose devices are names.
//
// It registers N devices of one resource with the kubelet whose device-plugins folder is mounted, gives a container that
// is allotted some of them NVIDIA_VISIBLE_DEVICES=name,name, and registers again when the kubelet comes back. Its control
// port takes `PUT /devices/NAME` with `Healthy` or `Unhealthy`, and reports all of them then and at `GET /devices`.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	version  = "deviceplugin 0.1.0"
	variable = "NVIDIA_VISIBLE_DEVICES"
	socket   = "graphpod-stub.sock"
	look     = 500 * time.Millisecond // between two looks at the kubelet's socket
	patience = 10 * time.Second       // for one registration
)

// devices are the names on offer and their health; changed is closed and replaced at every change.
type devices struct {
	mu      sync.Mutex
	names   []string
	health  map[string]string
	changed chan struct{}
}

func newDevices(prefix string, count int) *devices {
	d := &devices{health: map[string]string{}, changed: make(chan struct{})}
	for i := range count {
		name := fmt.Sprintf("%s-%d", prefix, i)
		d.names = append(d.names, name)
		d.health[name] = api.Healthy
	}
	return d
}

func (d *devices) set(name, health string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.health[name]; !known {
		return fmt.Errorf("no device %q; there are %s", name, strings.Join(d.names, ", "))
	}
	if health != api.Healthy && health != api.Unhealthy {
		return fmt.Errorf("a device is %s or %s, not %q", api.Healthy, api.Unhealthy, health)
	}
	d.health[name] = health
	close(d.changed)
	d.changed = make(chan struct{})
	return nil
}

// list is every device as the kubelet wants it, and a channel that closes when it is no longer so.
func (d *devices) list() ([]*api.Device, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []*api.Device
	for _, name := range d.names {
		all = append(all, &api.Device{ID: name, Health: d.health[name]})
	}
	return all, d.changed
}

// plugin is the service that the kubelet calls.
type plugin struct {
	api.UnimplementedDevicePluginServer
	devices *devices
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	for {
		all, changed := p.devices.list()
		if err := stream.Send(&api.ListAndWatchResponse{Devices: all}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		given := strings.Join(container.DevicesIds, ",")
		log.Printf("allotted %s", given)
		answer.ContainerResponses = append(answer.ContainerResponses,
			&api.ContainerAllocateResponse{Envs: map[string]string{variable: given}})
	}
	return answer, nil
}

// serve listens in the kubelet's folder and registers there. The kubelet empties the folder when it starts.
func serve(folder, resource string, d *devices) (*grpc.Server, error) {
	place := filepath.Join(folder, socket)
	if err := os.Remove(place); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	listener, err := net.Listen("unix", place)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, &plugin{devices: d})
	go func() {
		if err := server.Serve(listener); err != nil {
			log.Printf("serving ended: %v", err)
		}
	}()
	if err := register(filepath.Join(folder, "kubelet.sock"), resource); err != nil {
		server.Stop()
		return nil, err
	}
	return server, nil
}

func register(kubelet, resource string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	connection, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: socket, ResourceName: resource}
	_, err = api.NewRegistrationClient(connection).Register(ctx, request, grpc.WaitForReady(true))
	return err
}

// stay registers whenever the kubelet's socket is another than the last time, which is how a restart shows.
func stay(folder, resource string, d *devices) {
	var server *grpc.Server
	var known os.FileInfo
	for ; ; time.Sleep(look) {
		now, err := os.Stat(filepath.Join(folder, "kubelet.sock"))
		if err != nil || (known != nil && os.SameFile(known, now) && known.ModTime().Equal(now.ModTime())) {
			continue
		}
		if server != nil {
			server.Stop()
		}
		if server, err = serve(folder, resource, d); err != nil {
			log.Printf("not registered: %v", err)
			server, known = nil, nil
			continue
		}
		known = now
		log.Printf("registered %d of %s", len(d.names), resource)
	}
}

func control(d *devices) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	tell := func(w http.ResponseWriter, _ *http.Request) {
		all, _ := d.list()
		said := map[string]string{}
		for _, device := range all {
			said[device.ID] = device.Health
		}
		if err := json.NewEncoder(w).Encode(said); err != nil {
			log.Print(err)
		}
	}
	mux.HandleFunc("GET /devices", tell)
	mux.HandleFunc("PUT /devices/{name}", func(w http.ResponseWriter, r *http.Request) {
		word, err := io.ReadAll(io.LimitReader(r.Body, 64))
		if err == nil {
			err = d.set(r.PathValue("name"), strings.TrimSpace(string(word)))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		tell(w, r)
	})
	return mux
}

func main() {
	folder := flag.String("folder", "/var/lib/kubelet/device-plugins", "the kubelet's device-plugins folder")
	resource := flag.String("resource", "nvidia.com/gpu", "what is offered")
	prefix := flag.String("prefix", "GPU-stub", "of the devices' names")
	count := flag.Int("count", 2, "how many")
	address := flag.String("control", ":8081", "address of the control port")
	tell := flag.Bool("version", false, "print the version and end")
	flag.Parse()
	if *tell {
		fmt.Println(version)
		return
	}
	d := newDevices(*prefix, *count)
	go stay(*folder, *resource, d)
	log.Fatal(http.ListenAndServe(*address, control(d)))
}
