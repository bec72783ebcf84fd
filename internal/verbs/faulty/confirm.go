package faulty

import "github.com/rdmanet/go-rdmanet/internal/verbs/driver"

// LoseConfirmations has the messages be lost with which dialers confirm connections: a listener's
// end gets no ESTABLISHED before Notify says that data has arrived.
func (d *Driver) LoseConfirmations(lose bool) { d.loseConfirmations.Store(lose) }

// Notified is how often ids of the device have heard, by Notify, that data has arrived.
func (d *Driver) Notified() int { return int(d.notified.Load()) }

// lost reports whether an event is not to be told, for the message behind it is lost.
func (id *CMID) lost(ev *driver.CMEvent) bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	if !id.asked || id.heard || ev.Type != driver.CMEstablished || !id.d.loseConfirmations.Load() {
		return false
	}
	id.unconfirmed = ev
	return true
}

// Notify implements driver.Notifier.
func (id *CMID) Notify() error {
	id.d.notified.Add(1)
	id.mu.Lock()
	ev := id.unconfirmed
	id.unconfirmed, id.heard = nil, true
	id.mu.Unlock()
	if ev != nil && id.events.Push(*ev) {
		id.hand()
	}
	if n, ok := id.CMID.(driver.Notifier); ok {
		return n.Notify()
	}
	return nil
}
