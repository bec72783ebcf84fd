package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestKernelWithDevice(t *testing.T) {
	h := roceHost()
	assert.Equal(t, check{"kernel", "", statusOK, "RDMA devices: rxe0", ""}, one(t, h.checkKernel()))
}

func TestModuleThatIsNotLoaded(t *testing.T) {
	for _, tt := range []struct{ gone, fix string }{
		{"sys/class/infiniband_verbs", "modprobe ib_uverbs"},
		{"sys/class/misc/rdma_cm", "modprobe rdma_ucm"},
	} {
		h := fakeHost(withRoCE.without(tt.gone))
		c := one(t, h.checkKernel())
		assert.Equal(t, statusFail, c.Status)
		assert.Equal(t, tt.fix, c.Fix)
	}
	h := fakeHost(withRoCE.without("sys/class/infiniband_verbs", "sys/class/misc/rdma_cm"))
	assert.Len(t, h.checkKernel(), 2)
}

func TestNoDeviceIsNoFailure(t *testing.T) {
	const softRoCE = "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev "
	mlx5 := files{"sys/class/net/eth7/device/uevent": "PCI_CLASS=20000\nDRIVER=mlx5_core\nPCI_ID=15B3:1017"}
	for _, tt := range []struct {
		name  string
		files files
		fix   string
	}{
		{"no card", plain, softRoCE + "eth0"},
		{"nothing", files{}, softRoCE + "eth0"},
		{"two network devices", plain.with(files{
			"sys/class/net/eth1/address": "02:00:00:00:00:02",
			"proc/net/route":             "Iface Destination Gateway\neth0 000200C0 00000000\neth1 00000000 010200C0",
		}), softRoCE + "eth1"},
		{"only the loopback", files{"sys/class/net/lo/address": "00:00:00:00:00:00"}, softRoCE + "eth0"},
		{"another name", files{"sys/class/net/ens5/address": "02:00:00:00:00:02"}, softRoCE + "ens5"},
		{"a card", plain.with(mlx5), "modprobe mlx5_ib"},
		{"a card with its module", plain.with(mlx5).with(files{"sys/module/mlx5_ib/refcnt": "0"}), softRoCE + "eth0"},
		{"a module with dashes", plain.with(files{"sys/class/net/eth7/device/uevent": "DRIVER=hns3"}), "modprobe hns-roce-hw-v2"},
		{"its module", plain.with(files{"sys/class/net/eth7/device/uevent": "DRIVER=hns3", "sys/module/hns_roce_hw_v2/refcnt": ""}), softRoCE + "eth0"},
		{"a card of another kind", plain.with(files{"sys/class/net/eth7/device/uevent": "DRIVER=e1000"}), softRoCE + "eth0"},
		{"of another namespace", withRoCE.without("sys/class/infiniband"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := fakeHost(tt.files)
			c := one(t, h.checkKernel())
			assert.Equal(t, statusNote, c.Status)
			assert.Equal(t, tt.fix, c.Fix)
			assert.Contains(t, c.Detail, "no RDMA device")
		})
	}
}
