package faulty

import "github.com/rdmanet/go-rdmanet/internal/verbs"

// LoseConfirmations has the messages be lost with which dialers confirm connections: a listener's
// end gets no ESTABLISHED before Notify says that data has arrived.
func (d *Driver) LoseConfirmations(lose bool) { d.loseConfirmations.Store(lose) }

// Notified is how often ids of the device have heard, by Notify, that data has arrived.
func (d *Driver) Notified() int { return int(d.notified.Load()) }

// lost reports whether an event is not to be told, for the message behind it is lost.
func (id *CMID) lost(ev *verbs.CMEvent) bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	if !id.asked || id.heard || ev.Type != verbs.CMEstablished || !id.d.loseConfirmations.Load() {
		return false
	}
	id.unconfirmed = ev
	return true
}

// Notify implements verbs.Notifier.
func (id *CMID) Notify() error {
	id.d.notified.Add(1)
	id.mu.Lock()
	ev := id.unconfirmed
	id.unconfirmed, id.heard = nil, true
	id.mu.Unlock()
	if ev != nil && id.events.Push(*ev) {
		id.hand()
	}
	if n, ok := id.CMID.(verbs.Notifier); ok {
		return n.Notify()
	}
	return nil
}
