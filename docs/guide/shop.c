/* shop.c: takes orders, prices them, and delivers them. */
#include <TraceLoggingProvider.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The GUID is the hash of the name, so that sessions find the provider by its name. */
TRACELOGGING_DEFINE_PROVIDER(shop, "MyCompany.Shop",
    (0x2945d9ce, 0x9e18, 0x5f09, 0xd4, 0xbe, 0x77, 0xd7, 0xff, 0xd9, 0x07, 0x46));

#define KEYWORD_ORDERS 0x1
#define KEYWORD_DELIVERY 0x2

static double price(unsigned number) {
    double sum = 0;
    for (unsigned i = 1; i < 5000000; i++) {
        sum += 1.0 / (i + number);
    }
    return sum;
}

static void deliver(unsigned number) {
    usleep(50000);
    if (number % 4 == 3) {
        TraceLoggingWrite(shop, "DeliveryLate", TraceLoggingLevel(3), TraceLoggingKeyword(KEYWORD_DELIVERY),
            TraceLoggingUInt32(number, "number"), TraceLoggingUInt32(50, "minutes"));
    }
}

int main(int argc, char **argv) {
    unsigned orders = argc > 1 ? (unsigned)atoi(argv[1]) : 8;
    TraceLoggingRegister(shop);
    for (unsigned number = 0; number < orders; number++) {
        TraceLoggingWrite(shop, "Order", TraceLoggingOpcode(1), TraceLoggingLevel(4),
            TraceLoggingKeyword(KEYWORD_ORDERS), TraceLoggingUInt32(number, "number"),
            TraceLoggingString(number % 2 ? "tea" : "cake", "item"));
        double total = price(number);
        deliver(number);
        TraceLoggingWrite(shop, "Order", TraceLoggingOpcode(2), TraceLoggingLevel(4),
            TraceLoggingKeyword(KEYWORD_ORDERS), TraceLoggingUInt32(number, "number"),
            TraceLoggingFloat64(total, "total"));
    }
    printf("%u orders\n", orders);
    TraceLoggingUnregister(shop);
    return 0;
}
