use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bus::{ConsumerSpec, Transport, conformance};
use kernel::{Ambient, Stream};

use crate::support::{Fixture, Pinged};

#[async_trait]
impl conformance::World for Fixture {
    fn transport(&self) -> Arc<dyn Transport> {
        Self::transport(self)
    }
    fn ambient(&self) -> Ambient {
        self.db.ambient().clone()
    }
    async fn pass(&self, time: Duration) {
        Self::pass(self, time);
    }
    async fn dead_letters(&self, consumer: &str) -> usize {
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM dead_letters WHERE consumer = $1")
            .bind(consumer)
            .fetch_one(&mut self.admin().await)
            .await
            .unwrap();
        usize::try_from(count).unwrap()
    }
}

#[tokio::test]
async fn the_postgres_transport_conforms() {
    let fixture = Fixture::create().await;
    conformance::run_all(&fixture).await.unwrap();
}

#[tokio::test]
async fn a_message_published_while_its_consumer_registers_is_not_missed() {
    let fixture = Fixture::create().await;
    let transport = fixture.transport();
    fixture.emit(0..200).await;
    let spec = |n: u32| ConsumerSpec {
        name: format!("consumer-{n}"),
        stream: Stream::Storage.name().to_owned(),
        event_types: vec![<Pinged as kernel::Event>::TYPE.to_owned()],
    };
    let publishing = async {
        let relay = fixture.bus().relay();
        while relay.relay_batch().await.unwrap() > 0 {
            fixture.emit(0..20).await;
            if fixture.count("SELECT count(*) FROM bus_consumers").await == 20 {
                break;
            }
        }
    };
    let registering = async {
        for n in 0..20 {
            transport.consumer_ensure(&spec(n)).await.unwrap();
        }
    };
    tokio::join!(publishing, registering);
    let missing = "SELECT count(*) FROM bus_consumers c CROSS JOIN bus_messages m
        WHERE NOT EXISTS (SELECT FROM bus_deliveries d WHERE d.consumer = c.name AND d.event_id = m.event_id)";
    assert_eq!(fixture.count(missing).await, 0);
}
